"""A headless Chromium and clusters of real daemons to look at."""

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from harness.fixtures import (
    FAST,
    cluster_fixture,
    pytest_runtest_makereport,
    pytest_runtest_teardown,
)

__all__ = ["make_cluster", "pytest_runtest_makereport", "pytest_runtest_teardown"]
make_cluster = cluster_fixture(FAST, 60.0)

_NO_OTHER_HOSTS = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.*"
OpenPage = Callable[..., Any]


@pytest.fixture
def open_page() -> Iterator[OpenPage]:
    """`open_page(url, width, height, dark=False, phone=False)`: a selenium driver on `url`."""
    selenium = pytest.importorskip("selenium.webdriver", reason="make test-browser installs it")
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not browser or not driver:
        pytest.skip("no chromium with chromedriver: make test-browser installs them")
    opened: list[Any] = []

    def open_(
        url: str, width: int = 1280, height: int = 1400, dark: bool = False, phone: bool = False
    ) -> Any:
        options = selenium.ChromeOptions()
        options.binary_location = browser
        for argument in (
            *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            *(
                f"--window-size={width},{height}",
                _NO_OTHER_HOSTS,
            ),
        ):
            options.add_argument(argument)
        if phone:
            metrics = {"width": width, "height": height, "pixelRatio": 2}
            options.add_experimental_option("mobileEmulation", {"deviceMetrics": metrics})
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        page = selenium.Chrome(options=options, service=selenium.ChromeService(driver))
        opened.append(page)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        page.get(url)
        return page

    yield open_
    for page in opened:
        page.quit()
