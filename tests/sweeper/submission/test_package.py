"""What travels with a job: the code, and a sweep and a method of the user's own, without secrets."""

import contextlib
import os
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from zipfile import ZipFile

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from sweeper.definition import SpecError
from sweeper.submission import submit
from sweeper.submission.jobs import entrypoint
from sweeper.submission.package import check_size, contents, pack
from tests.cases import for_each
from tests.sweeper.submission.conftest import FakeClient
from tests.user_files import DENOISE, user_folder

CODE = {"README.md", "sweeper/run.py", "trainables/data/views.py"}
NOT_CODE = [
    ".env", ".git/config", ".venv/lib/a.py", "env/pyvenv.cfg", "env/lib/a.py", "conda/conda-meta/history",
    "conda/lib/a.py", "cache/CACHEDIR.TAG", "cache/0", "sweeper/__pycache__/run.pyc", "sweeper/old.pyc",
    "sweeper.egg-info/PKG-INFO", "other/trials/sweep=grid/c0.parquet", "other/heatmaps/grid/x.png",
    "results/trials/x.parquet", "data/cifar/batch", "sweeper/.notes",
]  # fmt: skip


def tree(folder: Path, files: Sequence[str] | set[str]) -> Path:
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


def test_the_code_alone_is_sent(tmp_path: Path) -> None:
    folder = tree(tmp_path, [*CODE, *NOT_CODE])
    assert contents(folder, [folder / "results", folder / "data"]).files == {name: len(name) for name in CODE}


def test_an_excluded_folder_excludes_no_other_of_the_same_name(tmp_path: Path) -> None:
    folder = tree(tmp_path, ["data/a.py", "trainables/data/a.py"])
    assert set(contents(folder, [folder / "data"]).files) == {"trainables/data/a.py"}
    assert set(contents(folder).files) == {"data/a.py", "trainables/data/a.py"}


def test_what_git_ignores_is_not_sent(tmp_path: Path) -> None:
    folder = tree(tmp_path, ["a.py", "b.log", "runs/x", "kept/b.log", "ünï code.py", "ünï.log"])
    (folder / ".gitignore").write_text("*.log\n/runs/\n!/kept/*.log\n")
    assert len(contents(folder).files) == 6
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
    assert set(contents(folder).files) == {"a.py", "kept/b.log", "ünï code.py"}


def test_a_folder_that_git_ignores_is_sent_on_request(tmp_path: Path) -> None:
    """The installed code is often in an environment that the repository around it ignores."""
    folder = tree(tmp_path, ["env/lib/sweeper/run.py", "env/lib/sweeper/storage/store.py"])
    (folder / ".gitignore").write_text("/env/\n")
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
    assert set(contents(folder / "env/lib/sweeper").files) == {"run.py", "storage/store.py"}
    assert not contents(folder).files


def test_secrets_are_left_out_and_named(tmp_path: Path) -> None:
    secrets = [
        "id_rsa", "deploy/ID_ED25519", "tls/server.pem", "tls/server.key", "credentials.json", "aws/credentials",
        "kubeconfig", "kubeconfig-prod.yaml", "prod.env", "secrets.yaml", "hf_token", "token.json", "store.p12",
        "rootkey.csv", "ann_accessKeys.csv", "wandb_api_key.txt", "wandb-api-key", "openai.apikey",
    ]  # fmt: skip
    code = ["credentials.py", "token.py", "tokens.md", "secretary.txt", "keys.json", "environment.yaml", "monkey.txt"]
    folder = tree(tmp_path, [*secrets, *code, ".env", ".ssh/id_rsa", ".aws/credentials", ".netrc"])
    (folder / "sa.json").write_text('{"type": "service_account", "private_key" : "x"}')
    (folder / "notes.txt").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\n")
    (folder / "innocent.txt").symlink_to(folder / ".ssh/id_rsa")
    (folder / "innocent.md").symlink_to(folder / "prod.env")
    found = contents(folder)
    assert set(found.files) == set(code)
    assert sorted(found.secrets) == sorted([*secrets, "sa.json", "notes.txt", "innocent.md"])


SERVICE_ACCOUNT = b'{"type": "service_account", "private_key": "x"}'


@for_each(
    ("name", "content"),
    [
        *((name, SERVICE_ACCOUNT) for name in ("sa.json.txt", "sa.jsonc", "sa", "sa.json.2024", "sa.dat")),
        *((name, b"x") for name in ("credentials.json.2024", "prod.env.20240101", "env.prod", "password.txt")),
        *((name, b"x") for name in ("my.pem.txt", "id_rsa.txt", "credentials.2024-01-31.json", "prod.env.staging")),
        ("sa.jsonc", b'// key\n{"private_key": "x"}'),
        ("sa.txt", SERVICE_ACCOUNT.decode().encode("utf-16")),
        ("key.txt", "-----BEGIN RSA PRIVATE KEY-----".encode("utf-16")),
        ("key.txt", "-----BEGIN RSA PRIVATE KEY-----".encode("utf-16-be")),
        ("key.txt", b"PuTTY-User-Key-File-3: ssh-rsa\n"),
        ("rclone.conf", b"[a]\nsecret_access_key = x"),
        ("s3.ini", b"[a]\r\naws_secret_access_key=a/b+c  ; of s3\r\n"),
        ("job.sh", b'export AWS_SECRET_ACCESS_KEY="a/b+c"\n'),
        *(
            (name, b"login(" + token + b")\n")
            for name in ("train.py", "README.md", "notes.txt", "book.ipynb")
            for token in (b"AKIA" + b"Z" * 16, b"ghp_" + b"a" * 36, b"'hf_" + b"b" * 34 + b"'", b"glpat-" + b"c" * 20)
        ),
    ],
)
def test_secrets_are_found_by_content_whatever_the_name(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    assert contents(tmp_path).secrets == [name]


@for_each(
    ("name", "content"),
    [
        ("keys.py", SERVICE_ACCOUNT + b"\nPuTTY-User-Key-File-3: \nsecret_access_key = x"),
        ("README.md", b'Write `"private_key": "x"`, or PuTTY-User-Key-File-3: ssh-rsa.\nsecret_access_key = x'),
        ("train.py", b"AKIAIOSFODNN7EXAMPLE hf_token ghp_short sk-learn-intelex-and-other-long-names-of-packages\n"),
        ("schema.json", b'{"properties": {"private_key": {"type": "string"}, "client_secret": ""}}'),
        ("book.ipynb", rb'{"source": ["d = {\"private_key\": \"x\"}", "secret_access_key = x"]}'),
        ("job.sh", b"export AWS_SECRET_ACCESS_KEY=${KEY}\nAWS_SECRET_ACCESS_KEY=$(cat key)\n"),
        ("s3.yaml", b"secret_access_key: <yours>\nclient_secret: {{ key }}\nsecret_access_key: env.KEY\n"),
        *(
            (name, b"x")
            for name in ("env.yaml", "env.sh", "notes.2024", "tokens.2024.csv", "secretary.txt", "a.1.json")
        ),
    ],
)
def test_what_mentions_secrets_is_sent(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    assert set(contents(tmp_path).files) == {name}


SECRET_FILES = ("credentials.json", "prod.env", "id_rsa", "a.pem", "hf_token", "gcp.json", "secrets.yaml", "notes.txt")
COPIES = (
    "{0}{1}~",
    "{0}{1}.bak",
    "{0}{1}.OLD",
    "Copy of {0}{1}",
    "{0} (copy){1}",
    "{0} (1){1}",
    "{0} - Copy{1}",
    "{0}_old{1}",
)
"""How copies of a file are named."""


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(SECRET_FILES),
    copies=st.lists(st.sampled_from(COPIES), max_size=2),
    upper=st.booleans(),
    before=st.integers(0, 200_000),
)
def test_copies_of_secrets_are_left_out_wherever_a_key_begins(
    name: str, copies: Sequence[str], upper: bool, before: int
) -> None:
    content = {"gcp.json": '{"private_key": "x"}', "notes.txt": "-----BEGIN RSA PRIVATE KEY-----"}.get(name, "x")
    for copy in copies:
        name = copy.format(*os.path.splitext(name))
    name = name.upper() if upper else name
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, name).write_text(" " * before + content)
        assert contents(Path(folder)).secrets == [name]


def test_names_of_copies_are_no_secrets_by_themselves(tmp_path: Path) -> None:
    names = ["copy.txt", "old", "(1).json", "results (copy).csv", "backup.sh", "~", "notes.bak", "my-old-code.txt"]
    assert set(contents(tree(tmp_path, names)).files) == {*names}


def test_only_files_are_sent(tmp_path: Path) -> None:
    folder = tree(tmp_path / "code", ["a.py", "there/b.py", "ignored/c.py"])
    tree(tmp_path, ["mnt/data/x"])
    (folder / "broken").symlink_to("nowhere")
    (folder / "loop").symlink_to("loop")
    (folder / "there/endless").symlink_to("..")
    (folder / "linked").symlink_to("there")
    (folder / "link.py").symlink_to("a.py")
    (folder / "device").symlink_to("/dev/zero")
    (folder / "data").symlink_to(tmp_path / "mnt/data")
    (folder / "skipped.py").symlink_to("ignored/c.py")
    (folder / ".gitignore").write_text("ignored\n")
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
    os.mkfifo(folder / "pipe")
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as listener, contextlib.chdir(folder):
        listener.bind("socket")
    found = contents(folder, [(folder / "data").resolve()])
    assert set(found.files) == {"a.py", "there/b.py", "link.py", "linked/b.py"}
    pack(folder, found.files, packed := tmp_path / "code.zip")
    with ZipFile(packed) as archive:
        assert archive.read("linked/b.py") == b"there/b.py" and archive.read("link.py") == b"a.py"


@pytest.mark.parametrize("target", ["file", "folder"])
def test_a_link_that_leaves_the_folder_is_refused_unless_git_ignores_it(tmp_path: Path, target: str) -> None:
    folder = tree(tmp_path / "code", ["a.py"])
    tree(tmp_path, ["file", "folder/x"])
    (folder / "link").symlink_to(f"../{target}")
    law = f"a symbolic link must not leave the folder that is sent, but {folder}/link leads to {tmp_path}/{target}; "
    with pytest.raises(SpecError) as refused:
        contents(folder)
    assert str(refused.value).startswith(law)
    assert ("link" in contents(folder, links_may_leave=True).files) == (target == "file")
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
    (folder / ".gitignore").write_text("link\n")
    assert set(contents(folder).files) == {"a.py"}


def test_a_directory_that_is_too_large_is_refused_with_its_largest_entries(tmp_path: Path) -> None:
    mib = 1 << 20
    files = {f"runs/old/deep/{n}": 10 * mib for n in range(6)} | {"big.bin": 35 * mib, "a/b.py": 4 * mib}
    check_size(tmp_path, {**files, "c": mib})
    with pytest.raises(SpecError) as refused:
        check_size(tmp_path, {**files, "c": mib + 1})
    assert str(refused.value) == (
        f"the working directory must not exceed 100.0 MiB, but {tmp_path} has 100.0 MiB, most of it in runs/old/ "
        "(60.0 MiB), big.bin (35.0 MiB), a/ (4.0 MiB); have git ignore what the job does not need, or give another "
        "--working-dir"
    )


def test_a_package_does_not_depend_on_when_its_files_were_written(tmp_path: Path) -> None:
    folder = tree(tmp_path / "code", CODE)
    pack(folder, sorted(CODE), first := tmp_path / "1.zip")
    os.utime(folder / "README.md", (1, 1))
    pack(folder, sorted(CODE), second := tmp_path / "2.zip")
    assert first.read_bytes() == second.read_bytes()
    (folder / "README.md").write_text("changed")
    pack(folder, sorted(CODE), third := tmp_path / "3.zip")
    assert first.read_bytes() != third.read_bytes()
    with ZipFile(third) as archive:
        assert {name: archive.read(name).decode() for name in archive.namelist()} == {
            name: "changed" if name == "README.md" else name for name in CODE
        }


def test_a_file_that_cannot_be_sent_is_reported_in_one_line(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "a\udcff").touch()
    for name, law in {
        "gone": "the job's code cannot be read: .*/gone: No such file or directory",
        "pipe": "the job's code cannot be read: .*/pipe: it is no regular file",
        "a\udcff": r"a file that is sent must have a name in UTF-8, but got '.*/a\\udcff'",
    }.items():
        with pytest.raises(SpecError, match=f"^{law}$"):
            pack(tmp_path, [name], tmp_path / "x.zip")


__all__ = ["user_folder"]

SWEEP = """
from sweeper import Grid, Heatmap, Metric, Sweep

KEYS = {"method": "sent_of_mine.denoise:Denoise", "dataset": "digits", "epochs": 1, "knn": 5}
AXES = {"sigma": (0.1, 0.2), "lr": (0.01, 0.1)}
SWEEP = Sweep("mine", {"tiny": Grid(KEYS, AXES)}, (Heatmap(Metric("knn_z", "maximize"), "sigma", "lr"),), name="chosen")
"""


@pytest.fixture
def sweep(client: FakeClient, user_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a sweep, in the working directory, and its method in a package beside it."""
    monkeypatch.chdir(user_folder)
    (user_folder / "sent_of_mine").mkdir()
    (user_folder / "sent_of_mine/denoise.py").write_text(DENOISE)
    (user_folder / "sent_of_mine/__init__.py").write_text("")
    (user_folder / "sent_of_mine/prod.env").write_text("")
    (user_folder / "not_sent.py").write_text("")
    file = user_folder / "sweep_of_mine.py"
    file.write_text(SWEEP)
    return file


@pytest.mark.parametrize("code", [[], ["--working-dir", str(Path(__file__).parents[3])]])
def test_the_job_has_the_code_and_the_users_modules(
    client: FakeClient, sweep: Path, tmp_path: Path, code: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert submit.main([str(sweep), "--store", str(tmp_path / "store"), *code]) == 0
    (submission,) = client.submissions
    assert submission["entrypoint"] == entrypoint(
        ["sweep_of_mine.py", "--store", str(tmp_path / "store"), "--data", submit.NODE_DATA]
    )
    assert submission["metadata"]["sweep"] == "chosen" and submission["submission_id"].startswith("chosen-")
    expected = {"sweep_of_mine.py", "sent_of_mine/__init__.py", "sent_of_mine/denoise.py", "sweeper/run.py"}
    assert expected | {"trainables/catalog.py", "search_spaces/anomaly_grid.py"} <= {*client.files}
    assert "sent_of_mine/prod.env" not in client.files
    assert (
        "note: not sent, by names or contents that are those of secrets: sent_of_mine/prod.env\n"
        in capsys.readouterr().err
    )
    assert "not_sent.py" not in client.files and len(client.files) == len(set(client.files))


def test_a_module_that_would_replace_the_codes_is_refused(
    client: FakeClient, sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (sweep.parent / "README.md").touch()
    (sweep.parent / "conftest_of_mine.py").write_text("")
    sweep.write_text(f"import conftest_of_mine\n{SWEEP}")
    code = tmp_path / "code"
    (code / "sweeper").mkdir(parents=True)
    (code / "sweeper/run.py").touch()
    (code / "conftest_of_mine.py").touch()
    assert submit.main([str(sweep), "--store", str(tmp_path / "store"), "--working-dir", str(code)]) == 2
    law = "error: modules of your own must not be named as the code's, but got conftest_of_mine.py; rename them\n"
    assert capsys.readouterr().err == law and not client.submissions


def test_the_users_files_count_towards_the_size(
    client: FakeClient, sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (sweep.parent / "sent_of_mine/weights.bin").open("wb") as file:
        file.truncate(101 << 20)  # sparse
    assert submit.main([str(sweep), "--store", str(tmp_path / "store")]) == 2
    err = capsys.readouterr().err
    assert "must not exceed 100.0 MiB" in err and "most of it in sent_of_mine/ (101.0 MiB)" in err
    assert not client.submissions
