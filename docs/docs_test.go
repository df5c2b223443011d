// Package docs has only tests, which compare the documents with the tree. .ci/docs runs the
// commands in the documents.
package docs

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = ".."

// documents lists every Markdown file of the tree, except test data.
func documents(t *testing.T) []string {
	t.Helper()
	var docs []string
	walk(t, func(name string, d fs.DirEntry) {
		if strings.HasSuffix(name, ".md") {
			docs = append(docs, name)
		}
	})
	if len(docs) < 5 {
		t.Fatalf("found only %d documents: %q", len(docs), docs)
	}
	return docs
}

// walk calls visit for every file of the tree, by its path from the root.
func walk(t *testing.T, visit func(name string, d fs.DirEntry)) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		hidden := strings.HasPrefix(d.Name(), ".") && name != "."
		if d.IsDir() && (hidden && d.Name() != ".github" || d.Name() == "testdata" || d.Name() == "out") {
			return fs.SkipDir
		}
		if !d.IsDir() {
			visit(name, d)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	fence   = regexp.MustCompile("(?ms)^```.*?^```$")
	inline  = regexp.MustCompile("`[^`\n]*`")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
)

func TestLinkTargetsExist(t *testing.T) {
	for _, doc := range documents(t) {
		text := fence.ReplaceAllString(read(t, doc), "")
		text = inline.ReplaceAllString(text, "code")
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			file := doc
			if target != "" {
				file = filepath.Join(filepath.Dir(doc), target)
			}
			if _, err := os.Stat(filepath.Join(root, file)); err != nil {
				t.Errorf("%s: the link to %s has no target", doc, m[1])
				continue
			}
			if anchor != "" && !slices.Contains(anchors(read(t, file)), anchor) {
				t.Errorf("%s: the link to %s: %s has no such heading", doc, m[1], file)
			}
		}
	}
}

// anchors returns the anchors of headings, as GitHub names them.
func anchors(text string) []string {
	var names []string
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		name := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r > 127:
				return r
			}
			return -1
		}, strings.ToLower(m[1]))
		names = append(names, name)
	}
	return names
}

func TestExampleCaseCitesRowOfLedger(t *testing.T) {
	m := regexp.MustCompile(`ibta\("[^"]*", "([^"]*)"\)`).FindStringSubmatch(read(t, "docs/adding-a-case.md"))
	if m == nil || !strings.Contains(read(t, "conformance/ledger/roce.yaml"), "- id: roce/"+m[1]+"\n") {
		t.Errorf("docs/adding-a-case.md cites %q: ibta adds roce/, and conformance/ledger/roce.yaml has no such row", m)
	}
}

func TestReadmeStartsWithTwoCommands(t *testing.T) {
	_, rest, found := strings.Cut(read(t, "README.md"), "```sh\n")
	block, _, _ := strings.Cut(rest, "```")
	if want := "go run ./cmd/fabrictest run\ngo test ./...\n"; !found || block != want {
		t.Errorf("the first commands of README.md are %q, want %q", block, want)
	}
}

// The map in docs/architecture.md lists all folders with Go code.
func TestArchitectureMapListsAllFolders(t *testing.T) {
	_, rest, _ := strings.Cut(read(t, "docs/architecture.md"), "```text\n")
	block, _, _ := strings.Cut(rest, "```")
	var onMap []string
	for line := range strings.Lines(block) {
		path, _, _ := strings.Cut(line, " ")
		if info, err := os.Stat(filepath.Join(root, path)); err != nil || !info.IsDir() {
			t.Errorf("docs/architecture.md: the map lists %s, which is not a folder", path)
		}
		onMap = append(onMap, path)
	}
	missing := map[string]bool{}
	walk(t, func(name string, _ fs.DirEntry) {
		inFolder := func(path string) bool { return strings.HasPrefix(name, path) }
		if strings.HasSuffix(name, ".go") && !slices.ContainsFunc(onMap, inFolder) {
			missing[filepath.Dir(name)] = true
		}
	})
	for dir := range missing {
		t.Errorf("docs/architecture.md: the map does not list %s", dir)
	}
}

func TestEveryPackageHasPackageComment(t *testing.T) {
	documented := map[string]bool{}
	walk(t, func(name string, _ fs.DirEntry) {
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, name), nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Error(err)
			return
		}
		want := "Package " + file.Name.Name + " "
		if file.Name.Name == "main" {
			want = "Command " + filepath.Base(filepath.Dir(name)) + " "
		}
		dir := filepath.Dir(name)
		documented[dir] = documented[dir] || strings.HasPrefix(file.Doc.Text(), want)
	})
	for dir, ok := range documented {
		if !ok {
			t.Errorf("%s has no package comment", dir)
		}
	}
}

func TestDecisionsAreListedAndComplete(t *testing.T) {
	files, err := filepath.Glob("decisions/[0-9]*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("no decisions: %v", err)
	}
	list := read(t, "docs/decisions/README.md")
	for _, name := range files {
		if !strings.Contains(list, "("+filepath.Base(name)+")") {
			t.Errorf("docs/decisions/README.md does not list %s", name)
		}
		text := read(t, "docs/"+name)
		for _, part := range []string{"Context", "Decision", "Consequences", "Alternatives considered"} {
			if !strings.Contains(text, "\n## "+part+"\n") {
				t.Errorf("%s has no part %q", name, part)
			}
		}
	}
}

// Workflows name each action by its commit hash, because the owner of an action can move a tag.
// A comment after the hash names the version.
func TestActionsArePinned(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, ".github/workflows/*.yml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no workflows: %v", err)
	}
	uses, pinned := regexp.MustCompile(`uses:.*`), regexp.MustCompile(`^uses: [\w./-]+@[0-9a-f]{40} # v\d`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range uses.FindAllString(string(text), -1) {
			if !pinned.MatchString(line) {
				t.Errorf("%s: %q: name a full commit hash, and its version in a comment", filepath.Base(file), line)
			}
		}
	}
}
