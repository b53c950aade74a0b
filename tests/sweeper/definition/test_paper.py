from sweeper.definition.paper import heading, read_place
from tests.cases import for_each


@for_each(
    ("text", "shown", "sections"),
    [
        ("Table 2", ("Table 2",), ()),
        ("Table 1, 6", ("Table 1",), ("6",)),
        ("Tables 5, 6", ("Table 5", "Table 6"), ()),
        ("Figs. 9, 10, 5.3", ("Fig. 9", "Fig. 10"), ("5.3",)),
        ("Figs. 4b, 6b", ("Fig. 4", "Fig. 6"), ()),
        ("Figs. 4f to 7", ("Fig. 4", "Fig. 5", "Fig. 6", "Fig. 7"), ()),
        ("4.1 to 4.3, B.3", (), ("4.1", "4.2", "4.3", "B.3")),
        ("D to G", (), ("D", "E", "F", "G")),
        ("abstract", (), ("abstract",)),
        ("Deep SVDD, Table 1", (), ("Deep SVDD, Table 1",)),
        ("", (), ()),
    ],
)
def test_a_place_is_tables_and_figures_and_sections(
    text: str, shown: tuple[str, ...], sections: tuple[str, ...]
) -> None:
    place = read_place(text)
    assert (place.shown, place.sections) == (shown, sections)


@for_each(
    ("place", "other", "expected"),
    [
        ("Figs. 4 to 7, 5.1", "Figs. 5b, 7b", True),
        ("Figs. 4 to 7, 5.1", "5.1, L", True),
        ("Figs. 4 to 7, 5.1", "Fig. 8, 5.1", False),
        ("4", "4.2", True),
        ("4", "44.2", False),
        ("A.8", "A", False),
        ("Table 1", "", False),
    ],
)
def test_a_place_covers_its_tables_else_what_is_inside_its_sections(place: str, other: str, expected: bool) -> None:
    assert read_place(place).covers(read_place(other)) == expected


@for_each(
    ("text", "expected"),
    [
        ("Tables 6, 7", "Tables 6, 7"),
        ("5.3", "Section 5.3"),
        ("3, 4", "Sections 3, 4"),
        ("A", "Appendix A"),
        ("D to P", "Appendices D to P"),
        ("abstract", "Abstract"),
        ("Eq. 10", "Eq. 10"),
    ],
)
def test_headings(text: str, expected: str) -> None:
    assert heading(text) == expected
