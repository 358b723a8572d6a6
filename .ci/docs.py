"""Hook of mkdocs.yml: pages from outside of docs/, reference pages, and links.

The site has every page of docs/, and the README files that PAGES names. Reference pages are generated, so that they cannot differ
from the programs: flags from --help, and values from the README that helm-docs writes. Tests write the tables in
docs/reference/metrics from the registries of the services. The names of docs/names.md, the functions of docs/tour.md and the packages
of services/*/README.md are compared with the code. Pages about services have a limit of words, and install charts in one form.

A link that leaves docs/ leads to the page of that file, if it has one, and to the repository otherwise. MkDocs warns about a link to a
file or heading that does not exist, and warnings fail the build.
"""

import functools
import glob
import html.parser
import logging
import os
import posixpath
import re
import subprocess

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

log = logging.getLogger("mkdocs.hooks.docs")

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DOCS = "docs/"

# Files outside of docs/, or patterns of them, and their pages. {} is the name of the folder.
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "deploy/examples/README.md": "examples.md",
    "deploy/emulators/README.md": "project/emulators.md",
    "deploy/local/README.md": "project/local.md",
    "services/*/README.md": "project/{}.md",
    "services/endpoint-picker/simulator/README.md": "project/endpoint-picker-simulator.md",
    "charts/*/README.md": "reference/charts/{}.md",
}
# Folders that links lead to, and the titles of their pages, which list the pages of the folder.
FOLDERS = {
    "docs/adr": "Architecture decisions",
    "docs/operations": "Operations",
    "docs/services": "Services",
}
# Programs beside those of the services: module and package.
PROGRAMS = {"endpoint-picker-replay": ("services/endpoint-picker/simulator", "./cmd/endpoint-picker-replay")}
MAX_WORDS = 2500
LINK = re.compile(r"(?P<before>\]\()(?P<target>[^)\s]+)(?P<after>\))")
FLAG = re.compile(r"^ +(?:-(?P<short>\w), )?--(?P<name>[\w-]+)(?: (?P<type>\S+))? {2,}(?P<help>.*)$")
DEFAULT = re.compile(r" \(default (?P<value>.*)\)$")
NAME = re.compile(r'"(fairlead\.dev/[A-Za-z-]+)"')
INSTALL = re.compile(r"helm install \S+ oci://\$REGISTRY/charts/[\w-]+ --version \$\{VERSION#v\} --namespace \S+ --create-namespace(?: |$)")
STEP = re.compile(r"^\| .* \| (?P<functions>`[^|]+`) \| \[[^\]]+\]\((?P<file>[^)]+\.go)\) \|$")
MARKER = re.compile(r"^(?:[-*]|\d+\.) +")


# Pages


@functools.cache
def borrowed():
    """Returns the files outside of docs/ by page."""
    pages = {}
    for pattern, page in PAGES.items():
        for file in sorted(glob.glob(pattern, root_dir=ROOT)):
            pages[page.format(posixpath.basename(posixpath.dirname(file)))] = file
    return pages


@functools.cache
def services():
    return sorted(posixpath.basename(posixpath.dirname(f)) for f in glob.glob("services/*/go.mod", root_dir=ROOT))


def generated():
    """Returns the functions that write the generated pages, by page."""
    pages = {}
    for program in [*services(), *PROGRAMS]:
        pages[f"reference/flags/{program}.md"] = functools.partial(flags_page, program)
    for folder, title in FOLDERS.items():
        pages[folder.removeprefix(DOCS) + "/index.md"] = functools.partial(folder_page, folder, title)
    return pages


def on_config(config):
    """Replaces patterns in the navigation by the pages that match and that it names nowhere else."""
    own = [posixpath.relpath(f, "docs") for f in glob.glob("docs/**/*.md", root_dir=ROOT, recursive=True)]
    pages = sorted({*own, *borrowed(), *generated()})
    named = set(leaves(config.nav))
    expand(config.nav, [p for p in pages if p not in named])
    return config


def leaves(item):
    if isinstance(item, str):
        return [item]
    return [leaf for child in (item.values() if isinstance(item, dict) else item) for leaf in leaves(child)]


def expand(items, pages):
    for i in reversed(range(len(items))):
        if isinstance(items[i], dict):
            for child in items[i].values():
                if isinstance(child, list):
                    expand(child, pages)
        elif "*" in items[i]:
            folder = posixpath.dirname(items[i])
            items[i : i + 1] = [p for p in pages if posixpath.dirname(p) == folder]


def check_names():
    """Fails for a label, annotation, finalizer or condition of the programs that docs/names.md does not list."""
    listed = open(os.path.join(ROOT, "docs/names.md"), encoding="utf-8").read()
    for pattern in "services/**/internal/**/*.go", "pkg/**/*.go":
        for path in glob.glob(os.path.join(ROOT, pattern), recursive=True):
            if path.endswith("_test.go"):
                continue
            for name in NAME.findall(open(path, encoding="utf-8").read()):
                if name not in listed:
                    raise PluginError(f"docs/names.md does not list {name}, which {os.path.relpath(path, ROOT)} uses")


def check_tour():
    """Fails for a row of docs/tour.md whose file does not exist, or does not declare one of its functions."""
    stale = []
    for row in read("docs/tour.md").splitlines():
        if not row.startswith("|") or ".go)" not in row:
            continue
        step = STEP.match(row)
        if not step:
            raise PluginError(f"docs/tour.md: the row does not have the form | step | `functions` | [file](path) |: {row}")
        file = posixpath.normpath(posixpath.join("docs", step["file"]))
        if not os.path.isfile(os.path.join(ROOT, file)):
            stale.append(f"{file} does not exist")
            continue
        code = read(file)
        stale += [f"{file} does not declare {name}" for name in re.findall(r"`([^`]+)`", step["functions"]) if not declares(code, name)]
    if stale:
        raise PluginError("docs/tour.md: " + "; ".join(stale))


def declares(code, name):
    """Reports whether Go code declares a function Name, or a method Type.Name."""
    receiver, _, function = name.rpartition(".")
    start = rf"^func \((?:\w+ )?\*?{re.escape(receiver)}(?:\[.*?\])?\) " if receiver else "^func "
    return re.search(start + re.escape(function) + r"[\[(]", code, re.MULTILINE) is not None


def check_packages():
    """Fails for a package of a service that its README does not list, or a listed one that does not exist."""
    for readme in glob.glob("services/*/README.md", root_dir=ROOT):
        service = posixpath.dirname(readme)
        rows = "\n".join(line for line in read(readme).splitlines() if line.startswith("|"))
        listed = set(re.findall(r"[`\[]((?:internal|test)/[\w/]+)[`\]]", rows))
        exist = {
            posixpath.dirname(file)
            for file in glob.glob("internal/**/*.go", root_dir=os.path.join(ROOT, service), recursive=True)
            if not file.endswith("_test.go") and "/testdata/" not in file
        }
        unlisted, stale = exist - listed, {package for package in listed if not os.path.isdir(os.path.join(ROOT, service, package))}
        if unlisted or stale:
            raise PluginError(f"{readme}: list {sorted(unlisted)}, remove {sorted(stale)}")


def check_sizes():
    """Fails for a page about a service, or its operation, that is too long to be about one subject."""
    for file in glob.glob("docs/services/*.md", root_dir=ROOT) + glob.glob("docs/operations/*.md", root_dir=ROOT):
        words = len(read(file).split())
        if words > MAX_WORDS:
            raise PluginError(f"{file} has {words} words, more than {MAX_WORDS}: move a subject to a page of its own")


def check_installs():
    """Fails for a command that installs a chart of a service in another form than docs/install.md."""
    chart = re.compile(r"helm install .*charts/(?:" + "|".join(services()) + r")\b")
    for file in [*glob.glob("docs/**/*.md", root_dir=ROOT, recursive=True), *borrowed().values()]:
        for line in read(file).splitlines():
            if chart.search(line) and not INSTALL.search(line):
                raise PluginError(f"{file} installs a chart in another form than docs/install.md: {line.strip()}")


def on_files(files, config):
    check_names()
    check_tour()
    check_packages()
    check_sizes()
    check_installs()
    for page, file in borrowed().items():
        if own := files.get_file_from_path(page):
            files.remove(own)  # docs/index.md: the site begins with the README
        files.append(File.generated(config, page, abs_src_path=os.path.join(ROOT, file)))
    for page, write in generated().items():
        files.append(File.generated(config, page, content=write()))
    return files


# Reference


def run_help(name, *command):
    """Returns what a program prints for --help. The go command caches it."""
    module, package = PROGRAMS.get(name, (f"services/{name}", "."))
    program = ["go", "run", package, *command, "--help"]
    environment = {k: v for k, v in os.environ.items() if k != "NAMESPACE"} | {"GOWORK": "off"}  # --pool-namespace has it as its default
    done = subprocess.run(program, cwd=os.path.join(ROOT, module), env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise PluginError(f"{' '.join(program)} of {name}: {done.stderr.strip()}")
    return done.stdout


def flags_page(service):
    text = run_help(service)
    parts = [f"# Flags of {service}\n", *command_section(service, text)]
    for name in sub_commands(text):
        parts += [f"\n## {service} {name}\n", *command_section(service, run_help(service, name))]
    return "\n".join(parts) + "\n"


def sub_commands(text):
    _, _, commands = text.partition("Available Commands:\n")
    names = [line.split()[0] for line in commands.partition("\n\n")[0].splitlines()]
    return [name for name in names if name != "help"]


def command_section(service, text):
    """Returns the description and the examples as they are, and the flags as a table."""
    lines = text.splitlines()
    rows = [row(line, service) for line in lines if re.match(r"^ +-", line)]
    description = text.partition("Usage")[0].strip()
    examples = text.partition("Examples:\n")[2].partition("\n\n")[0]
    parts = [description] if description else []
    if examples:
        parts.append("\n```sh\n" + "\n".join(line.strip() for line in examples.splitlines()) + "\n```\n")
    return [*parts, "\n| flag | type | default | description |\n|---|---|---|---|", *rows]


def row(line, service):
    match = FLAG.match(line)
    if not match:
        raise PluginError(f"--help of {service}: cannot read {line!r}")
    text = match["help"].strip()
    default = DEFAULT.search(text)
    names = [f"`--{match['name']}`"] + ([f"`-{match['short']}`"] if match["short"] else [])
    value = default["value"].strip('"') if default else ""
    cells = [", ".join(names), match["type"] or "bool", f"`{value}`" if value else "", DEFAULT.sub("", text)]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def folder_page(folder, title):
    lines = [f"# {title}\n"]
    for file in sorted(glob.glob(folder + "/*.md", root_dir=ROOT)):
        heading = re.search(r"^# (.*)$", read(file), re.MULTILINE)
        lines.append(f"- [{heading[1]}]({posixpath.basename(file)})")
    return "\n".join(lines) + "\n"


def read(file):
    with open(os.path.join(ROOT, file), encoding="utf-8") as f:
        return f.read()


# Markdown


def on_page_markdown(markdown, page, config, files):
    source = borrowed().get(page.file.src_uri)
    if source is None and page.file.src_uri not in generated():
        source = DOCS + page.file.src_uri
    if source is not None:
        markdown = LINK.sub(functools.partial(link, source, page.file.src_uri, config), markdown)
    return indent_lists(markdown)


def link(source, page, config, match):
    """Returns a link of a file of the repository as a link of its page."""
    path, hash_, anchor = match["target"].partition("#")
    if not path or "://" in path or path.startswith("mailto:"):
        return match[0]
    file = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    if not os.path.exists(os.path.join(ROOT, file)):
        return match[0]  # MkDocs warns
    target = page_of(file)
    if target:
        new = posixpath.relpath(target, posixpath.dirname(page) or ".")
    else:
        kind = "tree" if os.path.isdir(os.path.join(ROOT, file)) else "blob"
        new = f"{config.extra['repository']}/{kind}/{config.extra['branch']}/{file}"
    return match["before"] + new + hash_ + anchor + match["after"]


def page_of(file):
    """Returns the page of a file or folder, or None."""
    pages = {source: page for page, source in borrowed().items()}
    if file in FOLDERS:
        return file.removeprefix(DOCS) + "/index.md"
    if file.startswith(DOCS) and os.path.isfile(os.path.join(ROOT, file)):
        return file.removeprefix(DOCS)
    return pages.get(file) or pages.get(file + "/README.md")


def indent_lists(markdown):
    """Indents what belongs to a list item by four spaces. CommonMark wants the width of the marker, Python-Markdown wants four."""
    lines, width, fenced = [], 0, False
    for line in markdown.split("\n"):
        marker = MARKER.match(line)
        if marker and not fenced:
            width = len(marker[0])
        elif line and not line.startswith(" "):
            width = 0
        if line.lstrip().startswith("```"):
            fenced = not fenced
        if width and line.startswith(" " * width):
            line = " " * (4 - width) + line
        lines.append(line)
    return "\n".join(lines)


# The site


class Resources(html.parser.HTMLParser):
    """Finds what a browser loads from other hosts when it shows a page."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        url = attributes.get("src")
        if tag == "link" and attributes.get("rel") in ("stylesheet", "preconnect", "preload", "icon", "modulepreload"):
            url = attributes.get("href")
        if url and re.match(r"(?:https?:)?//", url):
            self.found.append(url)


def on_post_build(config):
    """Fails if a page needs another host."""
    for file in glob.glob(config.site_dir + "/**/*.html", recursive=True):
        parser = Resources()
        with open(file, encoding="utf-8") as f:
            parser.feed(f.read())
        for url in parser.found:
            log.warning("%s loads %s: the site must need no other host", os.path.relpath(file, config.site_dir), url)
