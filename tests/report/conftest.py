"""Pages in a real Chromium, offline, and axe-core, which says what people with assistive technology
would stumble over.
"""

import hashlib
import os
import shutil
import subprocess
import tarfile

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
AXE, AXE_SHA256 = (
    "axe-core@4.14.1",
    "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c",
)


@pytest.fixture(scope="session")
def browser():
    if CHROMIUM is None and os.environ.get("CI") != "true":
        pytest.skip("needs chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        # As root, which continuous integration is, Chromium starts without its sandbox only.
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_in(browser):
    """Opens a file in a window of a width and a colour scheme; nothing may go wrong in it."""
    contexts, complaints = [], []

    def open_file(path, *, width=1280, scheme="light"):
        viewport = {"width": width, "height": 900}
        context = browser.new_context(offline=True, viewport=viewport, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        kinds = ("error", "warning")
        page.on("console", lambda m: complaints.append(m.text) if m.type in kinds else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("requestfailed", lambda request: complaints.append(request.url))
        page.goto(path.as_uri())
        page.wait_for_function("document.documentElement.dataset.ready")
        page.evaluate(
            "() => { window.model = (name) => Bokeh.documents[0].get_model_by_name(name) }"
        )
        return page

    yield open_file
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture(scope="session")
def axe(request):
    """The text of axe-core; npm fetches it once into pytest's cache."""
    folder = request.config.cache.mkdir("axe-core")
    script = folder / "package" / "axe.min.js"
    if not script.is_file():
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("needs npm, which fetches axe-core")
        done = subprocess.run(
            [npm, "pack", "--silent", AXE], cwd=folder, capture_output=True, check=False
        )
        if done.returncode and os.environ.get("CI") != "true":
            pytest.skip("npm cannot fetch axe-core")
        assert done.returncode == 0, done.stderr.decode()
        with tarfile.open(folder / done.stdout.decode().split()[-1]) as archive:
            archive.extractall(folder, filter="data")
    text = script.read_bytes()
    assert hashlib.sha256(text).hexdigest() == AXE_SHA256
    return text.decode()


@pytest.fixture
def accessible(axe):
    """Fails with what axe-core finds on a page."""

    def check(page):
        page.evaluate(axe)
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
        assert [(v["id"], [n["html"][:120] for n in v["nodes"]]) for v in found] == []

    return check
