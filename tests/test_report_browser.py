"""The page in a real browser: it opens from a file, does what it offers, and runs nothing that a model wrote."""

import json
import re
import shutil
import time
from contextlib import contextmanager

import pytest
from conftest import slower
from scripted_boards import HOSTILE, STAGES, filled, packs_to, prose, talker, tasks_of
from test_report import AUDIT, broken, run

from fintrading_gym import ranking
from fintrading_gym.observations import PERSONAS
from fintrading_gym.rollout import Task
from fintrading_gym.statistics import analyse, in_words
from fintrading_gym.store import episodes, rows
from fintrading_gym.windows import EVALUATION

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER),
    reason="THE PAGE IS NOT TESTED: no Chromium here; on Debian: apt-get install chromium chromium-driver",
)
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage")

HOSTILE_AGENT, COMMITTEE = "llm:scripted/prose", "committee:scripted/prose"
TASKS = tasks_of(("tsla_main", "nvda_bull_2023"), ("adaptive", "risk_averse"), timesteps=12)
LARGEST, SLOWEST = 6_000_000, 2.0  # bytes, seconds

# Of each text that can be seen: its contrast with what is behind it. Returns those below 4.5, or 3 where it is large.
FAINT = """
const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
const light = (c) => 0.2126 * linear(c[0] / 255) + 0.7152 * linear(c[1] / 255) + 0.0722 * linear(c[2] / 255);
const behind = (element) => {
  for (let e = element; e; e = e.parentElement) {
    const c = numbers(getComputedStyle(e).backgroundColor);
    if (c.length < 4 || c[3] === 1) return c;
  }
  return [255, 255, 255];
};
const found = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
let seen = 0;
while (walker.nextNode()) {
  const text = walker.currentNode.data, element = walker.currentNode.parentElement, style = getComputedStyle(element);
  if (!text.trim() || !element.checkVisibility() || element.closest("script, [disabled], option")) continue;
  const c = numbers(element.closest("svg") ? style.fill : style.color);
  const [a, b] = [light(c), light(behind(element))].sort((x, y) => y - x);
  const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
  seen += 1;
  if ((a + 0.05) / (b + 0.05) < (large ? 3 : 4.5)) found.push([element.tagName, element.className, text.slice(0, 30)]);
}
return [seen, found];
"""
# What a keyboard reaches and a screen reader cannot name.
NAMELESS = """
const named = (e) => e.getAttribute("aria-label") || e.getAttribute("aria-labelledby") || e.labels?.length;
return [...document.querySelectorAll("button, a, select, input, summary, [tabindex='0']")]
  .filter((e) => e.checkVisibility() && !named(e) && !e.textContent.trim()).map((e) => e.outerHTML.slice(0, 80));
"""
# Of each agent, what its bar says.
BARS = """
return [...document.querySelectorAll("#board-table tr[data-agent]")]
  .map((line) => [line.dataset.agent, line.querySelector(".bar")?.getAttribute("aria-label")]);
"""
# A click in the middle of a day of the price chart's strip.
CLICK = """
const plot = document.querySelectorAll(".plot")[2];
plot.scrollIntoView({ block: "center", behavior: "instant" });
const day = plot.querySelectorAll("rect:not(.cursor)")[arguments[0] - 1].getBoundingClientRect();
const place = { bubbles: true, clientX: day.x + day.width / 2, clientY: day.y + day.height / 2 };
document.elementFromPoint(place.clientX, place.clientY).dispatchEvent(new MouseEvent("click", place));
"""
FOREIGN = """
const script = document.createElement("script");
try { script.textContent = "1"; return "taken"; } catch (fault) { return fault.name; }
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A board of two worlds with its page, board.db and board.html."""
    folder = tmp_path_factory.mktemp("page")
    players = ["buy_and_hold", "momentum", "flat", "oracle", talker(COMMITTEE, STAGES, content=300, memories=2)]
    players += [talker(HOSTILE_AGENT, hostile=HOSTILE, reasoning=200), broken]
    tasks = [*TASKS, Task("tsla_main", timesteps=12, world="mirror")]
    filled(folder / "board.db", players, tasks)
    rate = {"share": 0.9, "low": 0.8, "high": 0.95, "chance": 0.1, "p": 0.0005, "n": 40}
    sure, alone = {"mean": 0.52, "low": 0.3, "high": 0.74, "n": 24}, {"mean": -0.04, "low": None, "high": None, "n": 1}
    audit = AUDIT | {
        "verdict": "memory",
        "sentence": "Much of it may be <b>memory</b>.",
        "plan": {"cutoff": "2023-10-01"},
        "identification": {"masked": {"ticker": rate}},
        "recall": {"close_1pct": rate | {"chance": None, "p": None}, "direction": rate | {"p": 0.0425}},
        "invariance": {"real": {"mirror": {"pc": {"mean": 0.9, "low": 0.8, "high": 1.0}, "ci": None, "ids": 0.1}}},
        "foresight": {"real": {"real": sure, "others": alone, "difference": sure}},
    }
    (folder / "audit.json").write_text(json.dumps(audit))
    done = run(folder / "board.db", "--audit", folder / "audit.json")
    assert done.exit_code == 0, done.output
    return folder


@pytest.fixture(scope="module")
def browser():
    with opened_browser() as driver:
        yield driver


@contextmanager
def opened_browser():
    webdriver = pytest.importorskip("selenium.webdriver", reason="THE PAGE IS NOT TESTED: selenium is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


class Page:
    """The open page, and what a reader does with it."""

    def __init__(self, driver, path, scheme="light", width=1280, height=900, motion="no-preference", fragment=""):
        self.driver = driver
        self.emulate(scheme, motion)
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        driver.get("about:blank")  # an address that differs behind # alone would not be opened anew
        driver.get(path.as_uri() + (f"#{fragment}" if fragment else ""))
        self.until("document.documentElement.dataset.ready")

    def emulate(self, scheme, motion):
        features = {"prefers-color-scheme": scheme, "prefers-reduced-motion": motion}
        emulated = [{"name": name, "value": value} for name, value in features.items()]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": emulated})

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def value(self, expression, *arguments):
        return self.run(f"return {expression}", *arguments)

    def until(self, expression):
        from selenium.webdriver.support.ui import WebDriverWait

        return WebDriverWait(self.driver, 60, poll_frequency=0.02).until(lambda _: self.value(expression))

    def one(self, selector):
        return self.driver.find_element("css selector", selector)

    def texts(self, selector):
        return self.value("[...document.querySelectorAll(arguments[0])].map((e) => e.textContent)", selector)

    def click(self, selector):
        self.run("arguments[0].scrollIntoView({ block: 'center', behavior: 'instant' })", self.one(selector))
        self.one(selector).click()

    def choose(self, form, name, value):
        from selenium.webdriver.support.ui import Select

        Select(self.one(f"#{form} [name={name}]")).select_by_value(value)

    def press(self, *keys):
        from selenium.webdriver.common.action_chains import ActionChains
        from selenium.webdriver.common.keys import Keys

        ActionChains(self.driver).send_keys(*(getattr(Keys, key, key) for key in keys)).perform()

    def opened_day(self, title):
        """Wait for a day's panel."""
        self.until(
            f"document.getElementById('day').open && document.getElementById('day-title').textContent === '{title}'"
        )

    def agents(self):
        return self.value("[...document.querySelectorAll('#board-table tr[data-agent]')].map((e) => e.dataset.agent)")

    def quiet(self):
        """Nothing on the console, nothing asked of anybody, no markup of a model's."""
        assert self.driver.get_log("browser") == []
        assert self.value("performance.getEntriesByType('resource').length") == 0
        assert "owned" not in self.value("document.title")
        assert self.value("document.querySelectorAll('img, iframe, object').length") == 0
        assert self.value("document.querySelectorAll('script[type=module], script:not([type])').length") == 1


@pytest.fixture
def page(browser, folder):
    opened = Page(browser, folder / "board.html")
    yield opened
    opened.quiet()


# ------------------------------------------------------------------------------------------ the ranking


def test_the_ranking_is_that_of_the_board_and_who_is_not_ranked_stands_apart_with_the_reason(page, folder):
    real = [row for row in rows(folder / "board.db") if row["world"] == "real"]
    standings = ranking.rank(real)
    assert page.agents() == [s.agent for s in standings]
    apart = page.value("[...document.querySelectorAll('tbody.apart tr[data-agent]')].map((e) => e.dataset.agent)")
    assert apart == [s.agent for s in standings if s.why]
    reasons = page.texts("tbody.apart .why")
    assert "knows the future" in reasons
    assert any("RuntimeError: no more" in reason for reason in reasons)
    assert any("decided only" in reason for reason in reasons)
    shown = dict(zip(page.agents(), page.texts("#board-table .c-score b"), strict=False))
    assert shown == {s.agent: f"{s.means['score']:.3f}" for s in standings if s.means}


def test_bars_are_the_intervals_of_the_statistics_and_the_first_sentence_is_theirs(page, folder):
    found = analyse([row for row in rows(folder / "board.db") if row["world"] == "real"])
    told = dict(page.run(BARS))
    for s in found.standings:
        interval = s.intervals.get("score")
        ends = f"95 % interval {interval.low:.3f} to {interval.high:.3f}" if interval else "no interval"
        assert told[s.agent] == (ends if s.means else None)
    assert page.one("#finding").text == f"{in_words(found)[0]}."
    assert page.texts(".said li") == [f"{sentence}." for sentence in in_words(found)]
    (one,) = [c for c in found.comparisons if {c.better, c.worse} == {"flat", "momentum"}]
    page.choose("compare-body", "compared", one.worse)
    line = next(line for line in page.texts(".compare tbody tr") if line.startswith(one.better))
    assert f"\u2212{one.difference:.3f}" in line
    assert line.endswith(one.why)


def test_headings_sort_by_click_and_by_key_and_say_so(page, folder):
    heading = "#board-table thead .c-cr"
    page.click(f"{heading} button")
    best = page.agents()
    assert page.one(heading).get_attribute("aria-sort") == "descending"
    assert page.value("document.activeElement.dataset.column") == "cr"
    page.press("ENTER")
    assert page.one(heading).get_attribute("aria-sort") == "ascending"
    apart = len(page.texts("tbody.apart tr[data-agent]"))
    ranked = page.agents()[:-apart]
    assert ranked == best[: len(ranked)][::-1]
    page.press("SPACE")
    assert page.agents() == best
    assert page.texts("#board-table thead th[aria-sort=none]").count("CR") == 0
    page.click("#board-table thead .c-mdd button")  # the less the better, so that comes first
    assert page.one("#board-table thead .c-mdd").get_attribute("aria-sort") == "ascending"


def test_filters_show_the_means_of_their_episodes_and_no_ranks(page, folder):
    assert page.one("#board-table caption").text.startswith("Agents sorted by rank.")
    page.choose("filters", "cell", "tsla_main")
    page.choose("filters", "persona", "risk_averse")
    chosen = [row for row in rows(folder / "board.db") if (row["world"], row["cell"]) == ("real", "tsla_main")]
    chosen = [row for row in chosen if row["persona"] in (None, "risk_averse") and row["score"] is not None]
    shown = dict(zip(page.agents(), page.texts("#board-table .c-score b"), strict=False))
    assert shown == {row["agent"]: f"{row['score']:.3f}" for row in chosen}
    assert set(page.texts("#board-table td.c-rank")) == {"\u00b7"}
    assert page.one("#board-table caption").text.startswith("Agents sorted by score.")
    assert "A part of the board: 7 of " in page.one("#part").text
    page.choose("filters", "identity", "masked")
    assert set(page.agents()) == {HOSTILE_AGENT, COMMITTEE}
    page.one("#filters [name=find]").send_keys("COMMIT")
    assert page.agents() == [COMMITTEE]
    page.one("#filters [name=find]").send_keys("x")
    assert page.agents() == []
    assert "No agent's name has \u201cCOMMITx\u201d" in page.one("#part").text


def test_no_filter_lies_on_another(page):
    places = "[...document.querySelectorAll('#filters select, #filters input')].map((e) => e.getBoundingClientRect())"
    boxes = page.value(f"{places}.map(({{ left, right, top, bottom }}) => [left, right, top, bottom])")
    assert len(boxes) == 5
    for k, (left, right, top, bottom) in enumerate(boxes):
        for other in boxes[k + 1 :]:
            assert right <= other[0] or other[1] <= left or bottom <= other[2] or other[3] <= top


def test_a_counterfactual_world_is_a_board_of_its_own(page):
    page.choose("filters", "world", "mirror")
    assert page.value("new URLSearchParams(location.hash.slice(1)).get('world')") == "mirror"
    assert all(text.startswith("mirror: ") for text in page.texts("#days-filters [name=market] option:checked"))
    assert "what happened" not in page.texts("#filters [name=world] option:checked")[0]


# -------------------------------------------------------------------------------------------- the days


def test_a_click_on_the_price_opens_the_day_as_it_was_sent_and_answered(page, folder):
    page.click(f"#board-table tr[data-agent='{HOSTILE_AGENT}'] .c-agent button")
    page.choose("days-filters", "who", "risk_averse")
    assert page.value("new URLSearchParams(location.hash.slice(1)).get('agent')") == HOSTILE_AGENT
    market = page.texts("#days-filters [name=market] option:checked")[0]
    (stored,) = [
        one
        for one in episodes(folder / "board.db")
        if [one.row[name] for name in ("agent", "world", "cell", "persona")]
        == [HOSTILE_AGENT, "real", market, "risk_averse"]
    ]
    page.run(CLICK, 3)
    page.opened_day(f"Day 3 of 12 {stored.episode.ledger.date[2]}")
    (call,) = stored.episode.log[2]["calls"]
    assert page.texts("#day .sent pre") == [message["content"] for message in call["messages"]]
    assert call["content"] in page.texts("#day pre")
    assert call["reasoning"] in page.texts("#day pre")
    numbers = dict(zip(page.texts("#day .numbers dt"), page.texts("#day .numbers dd"), strict=True))
    assert float(numbers["earned until the next close"].replace("\u2212", "-")) == pytest.approx(
        stored.episode.ledger.log_return[2], abs=1e-4
    )
    assert numbers["decision"] == call["verdict"]["action"]
    assert (
        numbers["TSLA close, USD" if market == "tsla_main" else "NVDA close, USD"]
        == f"{stored.episode.ledger.price[2]:.2f}"
    )


def test_the_keyboard_alone_reaches_a_day_steps_through_days_and_comes_back(page):
    page.run("document.querySelectorAll('.plot')[0].focus()")
    plot = "document.querySelectorAll('.plot')[0]"
    page.press("ARROW_RIGHT", "ARROW_RIGHT", "ARROW_LEFT")
    assert page.value(f"{plot}.getAttribute('aria-valuenow')") == "2"
    assert "Day 2, " in page.value(f"{plot}.getAttribute('aria-valuetext')")
    page.press("END")
    assert page.value(f"{plot}.getAttribute('aria-valuenow')") == "12"
    page.press("HOME", "ENTER")
    page.until("document.getElementById('day').open")
    page.until("document.activeElement.id === 'day-title'")
    for day in (2, 3):
        page.press("ARROW_RIGHT")
        page.until(f"document.getElementById('day-title').textContent.startsWith('Day {day} of')")
    page.press("ESCAPE")
    page.until("!document.getElementById('day').open")
    assert page.value(f"document.activeElement === {plot}")
    assert page.value(f"{plot}.getAttribute('aria-valuenow')") == "3"
    assert page.run(NAMELESS) == []


def test_tab_goes_from_the_link_to_the_ranking_through_the_filters_into_the_table(page):
    page.press("TAB")
    assert page.value("document.activeElement.className") == "skip"
    reached = []
    for _ in range(20):
        page.press("TAB")
        reached.append(
            page.value(
                "document.activeElement.name || document.activeElement.dataset.column || document.activeElement.tagName"
            )
        )
    wanted = ["SUMMARY", "world", "cell", "persona", "identity", "find", "rank", "score"]
    places = [reached.index(name) for name in wanted]
    assert places == sorted(places)


def test_a_committee_is_shown_stage_by_stage_and_what_else_was_kept_beside_it(browser, folder):
    opened = Page(browser, folder / "board.html", fragment=f"agent={COMMITTEE}&day=8")
    opened.until("document.getElementById('day').open")
    assert opened.texts("#day .stage") == [f"{k}. {name}" for k, name in enumerate(STAGES, 1)]
    assert opened.texts("#day .call > summary .badge") == ["none, held"]
    assert any("gave no decision" in text for text in opened.texts("#day .alert"))
    assert "The reply held no JSON object that could be read." in " ".join(opened.texts("#day .alert"))
    assert {"reflection", "retrieved"} <= set(opened.texts("#day dl.tree dt"))
    opened.quiet()


def test_an_agent_without_a_model_shows_the_days_view_and_one_that_failed_its_failure(browser, folder):
    opened = Page(browser, folder / "board.html", fragment="agent=momentum&day=2")
    opened.until("document.getElementById('day').open")
    assert "decisions taken: 1 of 12" in opened.texts("#day pre")[0]
    opened = Page(browser, folder / "board.html", fragment="agent=broken")
    assert opened.value("document.querySelector('.plot').getAttribute('aria-valuemax')") == "2"
    opened.quiet()


def test_curves_are_switched_and_the_days_stand_in_a_table_too(page):
    before = len(page.texts("#charts figure:first-child polyline"))
    page.click("#legend [data-curve='=best']")
    assert len(page.texts("#charts figure:first-child polyline")) == before - 1
    assert page.one("#legend [data-curve='=best']").get_attribute("aria-pressed") == "false"
    page.click("#ledger summary")
    page.until("document.querySelectorAll('#ledger-table tbody tr').length === 12")
    page.click("#ledger-table tbody tr:nth-child(5) button")
    page.until("document.getElementById('day-title')?.textContent.startsWith('Day 5 of 12')")


# --------------------------------------------------------------------------------- what models may write


def test_what_a_model_wrote_is_shown_to_the_letter_and_never_run(browser, folder):
    opened = Page(browser, folder / "board.html", fragment=f"agent={HOSTILE_AGENT}&day=1")
    for day, wrote in enumerate(HOSTILE, 1):
        opened.until(f"document.getElementById('day-title')?.textContent.startsWith('Day {day} of')")
        assert any(text.startswith(wrote) for text in opened.texts("#day pre"))
        opened.quiet()
        opened.click("#day [data-step='1']")


def test_the_browser_itself_refuses_markup_and_foreign_scripts(page):
    refused = "try { document.body.innerHTML = '<p>'; return 'taken'; } catch (fault) { return fault.name; }"
    assert page.run(refused) == "TypeError"
    assert page.run(FOREIGN) == "TypeError"
    page.driver.get_log("browser")  # the refusals are told there


# --------------------------------------------------------------------------------------- leaks and cost


def test_the_leakage_card_has_guard_level_leaks_and_the_audit(page):
    cards = [card for card in page.texts("#leakage .card") if card.startswith(HOSTILE_AGENT)]
    assert "guard levelmasked" in cards[0]
    assert "leaks found in its texts0" in cards[0]
    assert "its knowledge ends2023-10-01" in cards[0]
    assert "Audit: memory. Much of it may be <b>memory</b>." in cards[0]
    assert "names the ticker (masked)90 %80 %..95 %10 %< 0.001" in cards[0]
    assert "recalls a close within 1 %90 %80 %..95 %unknownunknown" in cards[0]
    assert "recalls the next day's direction90 %80 %..95 %10 %0.043" in cards[0]  # of a p of 0.0425
    assert "real0.52 (0.30..0.74)\N{MINUS SIGN}0.040.52 (0.30..0.74)" in cards[0]
    assert "p: how often luck alone" in cards[0]
    assert any("Not audited" in card for card in page.texts("#leakage .card"))
    assert "For human readers" in page.one(".notice").text


def test_cost_and_score_meet_in_one_chart(page):
    names = page.texts("#cost .label")
    assert {HOSTILE_AGENT, "momentum"} <= set(names)
    assert "no model" in page.texts("#cost .axis")


# ------------------------------------------------------------------------------------------ every screen


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out_from_what_is_behind_it(browser, folder, scheme):
    opened = Page(browser, folder / "board.html", scheme, fragment=f"agent={HOSTILE_AGENT}&day=8")
    opened.until("document.getElementById('day').open")
    opened.run("document.querySelectorAll('details').forEach((e) => { e.open = true; })")
    seen, faint = opened.run(FAINT)
    assert seen > 300
    assert faint == []
    page, ink = (sum(map(float, re.findall(r"\d+", colour)[:3])) for colour in opened.value(
        "['backgroundColor', 'color'].map((name) => getComputedStyle(document.body)[name])"))  # fmt: skip
    assert (page < ink) == (scheme == "dark")
    opened.quiet()


def test_on_a_phone_nothing_is_wider_than_the_screen(browser, folder):
    opened = Page(browser, folder / "board.html", width=360, height=740, fragment=f"agent={COMMITTEE}")
    opened.run("document.querySelectorAll('details').forEach((e) => { e.open = true; })")
    assert opened.value("document.documentElement.scrollWidth") == 360
    opened.click("#days-filters button")
    opened.until("document.getElementById('day').open")
    opened.run("document.querySelectorAll('details').forEach((e) => { e.open = true; })")
    assert opened.value("document.documentElement.scrollWidth") == 360
    assert opened.value("document.querySelector('.day-body').scrollWidth <= 360")
    assert opened.value("document.getElementById('day').matches(':modal')")
    assert opened.value("document.getElementById('day').getBoundingClientRect().width") == 360
    opened.press("ESCAPE")
    opened.until("!document.getElementById('day').open")
    opened.quiet()


def test_who_wants_no_motion_gets_none(browser, folder):
    scrolling = "getComputedStyle(document.documentElement).scrollBehavior"
    opened = Page(browser, folder / "board.html", motion="reduce")
    assert opened.value(scrolling) == "auto"
    opened.emulate("light", "no-preference")
    assert opened.value(scrolling) == "smooth"


def test_a_board_on_which_no_day_was_played_says_so_and_why(browser, tmp_path):
    def dead(task):
        raise RuntimeError("no key")

    filled(tmp_path / "board.db", [dead], [Task("tsla_main")])
    assert run(tmp_path / "board.db").exit_code == 0
    opened = Page(browser, tmp_path / "board.html")
    assert opened.one("#absent").text == "No day was played."
    assert any("RuntimeError: no key" in reason for reason in opened.texts(".why"))
    opened.quiet()


# ----------------------------------------------------------------------------------------- a large board


def test_the_prose_of_the_boards_here_packs_no_better_than_english():
    import random

    from scripted_boards import ROOT

    english = "".join((ROOT / name).read_text() for name in ("README.md", "docs/guard.md", "CONTRIBUTING.md"))
    assert packs_to(prose(random.Random(0), len(english))) >= packs_to(english)


@pytest.mark.slow
@pytest.mark.timed
def test_twelve_tasks_eight_agents_and_fifty_days_stay_under_six_megabytes_and_open_in_two_seconds(browser, tmp_path):
    players = [
        talker("llm:scripted/terse", content=40),
        talker("llm:scripted/short", content=300),
        talker("llm:scripted/short-again", content=300),
        talker("llm:scripted/long", content=800),
        talker("llm:scripted/reasoning", content=300, reasoning=1500),
        talker("llm:scripted/reasoning-again", content=300, reasoning=1500),
        talker("finmem:scripted/prose", content=400, memories=10),
        talker("committee:scripted/prose", STAGES, content=900),
    ]
    filled(tmp_path / "board.db", players, tasks_of(EVALUATION, PERSONAS))
    assert run(tmp_path / "board.db").exit_code == 0
    size = (tmp_path / "board.html").stat().st_size
    assert 1_000_000 < size < LARGEST
    slowest = SLOWEST * slower(time.perf_counter)
    opened = Page(browser, tmp_path / "board.html", fragment="agent=committee:scripted/prose")
    assert float(opened.value("document.documentElement.dataset.ready")) / 1000 < slowest
    opened.click("#days-filters button")
    began = opened.value("performance.now()")
    opened.until("document.getElementById('day').open")
    assert (opened.value("performance.now()") - began) / 1000 < slowest
    opened.quiet()
