package misuse_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/explore"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/misuse"
	"github.com/fabrictest/fabrictest/mpi/transport"
)

// program is a wrong program and its correct twin, which run is called with to be told apart. A wrong
// one has the finding of a kind at some lines. Each line has a comment with a mark, a capital letter; at
// names them after the ranks: "0A 1B".
type program struct {
	name  string
	ranks int
	kind  string
	at    string
	run   func(w *mpi.World, wrong bool)
}

// groups are all programs, by category.
var groups = map[string][]program{
	"matching and deadlocks":   deadlocks,
	"buffering":                buffering,
	"requests":                 requests,
	"messages":                 messages,
	"communicators, handles":   handles,
	"windows":                  windows,
	"message races":            races,
	"arguments of calls":       arguments,
	"buffers of pending calls": buffers,
	"collectives":              collectives,
}

// ok and get end a program at an error.
func ok(err error) {
	if err != nil {
		panic(err)
	}
}

func get[T any](v T, err error) T {
	ok(err)
	return v
}

// check runs a program with a checker: first as it is and, if nothing is found, with synchronous sends.
func check(t testing.TB, p *program, wrong bool, without ...string) []explore.Finding {
	for _, synchronous := range []bool{false, true} {
		c := misuse.New(misuse.Options{Synchronous: synchronous, MessageRaces: p.kind == misuse.MessageRace, Without: without})
		f := mpihost.Fabric{Ranks: p.ranks, PerHost: p.ranks, Limit: 30 * time.Second, Events: 300_000}
		_, err := mpihost.InWorld(f, func(e *transport.Env) error {
			return mpi.Run(e, mpi.Options{Misuse: c}, func(w *mpi.World) error {
				p.run(w, wrong)
				return nil
			})
		})
		if found := c.Findings(); len(found) > 0 {
			return found
		}
		if err != nil {
			if len(without) == 0 {
				t.Errorf("%s: the run fails without a finding: %v", p.name, err)
			}
			return nil
		}
	}
	return nil
}

var (
	markComment = regexp.MustCompile(`// ([A-Z])$`)
	lineOfPlace = regexp.MustCompile(`(\w+_test\.go):(\d+)`)
)

// markOf returns the mark of a line; "?" if it has none.
func markOf(t testing.TB, file string, line int) string {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if m := markComment.FindStringSubmatch(strings.Split(string(text), "\n")[line-1]); m != nil {
		return m[1]
	}
	return "?"
}

// marks returns the marks of places, in the form of program.at.
func marks(t testing.TB, places []explore.Place) string {
	var all []string
	for _, p := range places {
		all = append(all, fmt.Sprint(p.Rank, markOf(t, filepath.Base(p.File), p.Line)))
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), " ")
}

// withMarks returns a text with marks instead of the numbers of lines.
func withMarks(t testing.TB, text string) string {
	return lineOfPlace.ReplaceAllStringFunc(text, func(place string) string {
		file, number, _ := strings.Cut(place, ":")
		line, _ := strconv.Atoi(number)
		return file + ":" + markOf(t, file, line)
	})
}

var update = flag.Bool("update", false, "write the texts of findings to testdata/findings.golden")

// Every wrong program has exactly the finding that is written beside it, with its lines and the text in the
// golden file, and its correct twin none.
func TestPrograms(t *testing.T) {
	var texts strings.Builder
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		programs := groups[group]
		t.Run(group, func(t *testing.T) {
			for i := range programs {
				p := &programs[i]
				t.Run(p.name, func(t *testing.T) {
					found := check(t, p, true)
					if len(found) != 1 || found[0].Kind != p.kind || marks(t, found[0].Places) != p.at {
						t.Errorf("found %d, want %s at %s", len(found), p.kind, p.at)
						for i := range found {
							t.Errorf("%s at %s", misuse.Text(&found[i]), marks(t, found[i].Places))
						}
					} else {
						fmt.Fprintf(&texts, "%s\n%s\n", p.name, withMarks(t, misuse.Text(&found[0])))
					}
					for _, f := range check(t, p, false) {
						t.Errorf("the correct program: %s", misuse.Text(&f))
					}
				})
			}
		})
	}
	if !t.Failed() {
		testutil.Golden(t, "testdata/findings.golden", []byte(texts.String()), *update)
	}
}

// A program notices if a kind of findings is switched off.
func TestEveryKindIsNeeded(t *testing.T) {
	first := map[string]*program{}
	for _, programs := range groups {
		for i := range programs {
			first[programs[i].kind] = &programs[i]
		}
	}
	for _, kind := range misuse.Kinds() {
		p := first[kind]
		if p == nil {
			t.Errorf("no program has the kind %q", kind)
			continue
		}
		for _, f := range check(t, p, true, kind) {
			if f.Kind == kind {
				t.Errorf("%s: %q is found although it is switched off", p.name, kind)
			}
		}
	}
}

// The document has the number of programs of each category.
func TestDocumentHasNumbers(t *testing.T) {
	text, err := os.ReadFile("../../docs/misuse.md")
	if err != nil {
		t.Fatal(err)
	}
	for group, programs := range groups {
		if want := fmt.Sprintf("\n| %s | %d | %d | 0 | 0 |", group, len(programs), len(programs)); !strings.Contains(string(text), want) {
			t.Errorf("docs/misuse.md does not have %q", want)
		}
	}
}
