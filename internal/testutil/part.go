// Package testutil has helpers for the tests of several packages: hosts in network namespaces
// ([HostPair], [NamespaceMain]), a verbs device with defects ([FaultyDevice]), goldens and
// schemas of documents ([Golden], [Document]), parts of a large product of configurations
// ([PartFlag]), the number of parallel tests ([SetParallel]) and a PATH of selected programs
// ([PathWith]). Package must checks the errors of calls.
package testutil

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Part is the set of configurations to run; without -part it contains all.
type Part struct{ number, of int }

// PartFlag defines the flag -part=I/N, and returns its value: the part of a test's configurations
// to run.
func PartFlag() *Part {
	p := new(Part)
	flag.Var(p, "part", "run part `I/N` of the configurations: number I, I+N, I+2N, and so on, counted from 0")
	return p
}

// Given reports whether the flag was set.
func (p *Part) Given() bool { return p.of > 0 }

// Has reports whether the part contains the configuration with a number.
func (p *Part) Has(number int) bool { return p.of == 0 || number%p.of == p.number }

// Sample reports whether to run the configuration with a number. It selects those of the part, or
// one of every n if the flag was not set.
func (p *Part) Sample(number, n int) bool {
	if p.Given() {
		return p.Has(number)
	}
	return number%n == 0
}

// Set implements flag.Value. It parses I/N: part I of N, counted from 0.
func (p *Part) Set(text string) error {
	var number, of int
	var rest string
	if n, _ := fmt.Sscanf(text, "%d/%d%s", &number, &of, &rest); n != 2 || of < 1 || number < 0 || number >= of {
		return fmt.Errorf("want I/N with 0 <= I < N, as in 7/61")
	}
	*p = Part{number, of}
	return nil
}

// String implements flag.Value.
func (p *Part) String() string {
	if p.of == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", p.number, p.of)
}

// SetParallel lets up to n parallel tests run at once, as -parallel=n does. TestMain
// calls it before flags are parsed, and an explicit -parallel flag overrides it.
func SetParallel(n int) {
	if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil {
		panic(err) // not a test binary
	}
}

// PathWith returns a value for PATH that has only the named programs: a temporary directory with
// symbolic links to them. It fails the test if one is not installed.
func PathWith(tb testing.TB, programs ...string) string {
	tb.Helper()
	dir := tb.TempDir()
	for _, name := range programs {
		found, err := exec.LookPath(name)
		if err == nil {
			found, err = filepath.Abs(found)
		}
		if err == nil {
			err = os.Symlink(found, filepath.Join(dir, name))
		}
		if err != nil {
			tb.Fatalf("this test needs %s: %v", name, err)
		}
	}
	return dir
}

// Shards calls test for the numbers from 0 to n-1, divided among eight parallel subtests. A subtest
// ends at its first failure.
func Shards(t *testing.T, n int, test func(t *testing.T, i int)) {
	const shards = 8
	t.Run("shards", func(t *testing.T) {
		for shard := range shards {
			t.Run(fmt.Sprint(shard), func(t *testing.T) {
				t.Parallel()
				for i := shard; i < n && !t.Failed(); i += shards {
					test(t, i)
				}
			})
		}
	})
}

// Requirements has a test for each requirement of a specification, by its number.
type Requirements map[string]func(*testing.T)

// JoinRequirements merges tables of tests into one, with the IDs of the tested requirements as
// keys. A key of parts may list several IDs, separated by spaces, which share a test. It panics if
// a requirement has two tests.
func JoinRequirements(parts ...map[string]func(*testing.T)) Requirements {
	all := Requirements{}
	for _, part := range parts {
		for ids, test := range part {
			for _, id := range strings.Fields(ids) {
				if all[id] != nil {
					panic("two tests for " + id)
				}
				all[id] = test
			}
		}
	}
	return all
}

// Run runs the tests as subtests, in the order of their requirements.
func (r Requirements) Run(t *testing.T) {
	for _, id := range slices.Sorted(maps.Keys(r)) {
		t.Run(id, r[id])
	}
}

// ExpectComplete checks that every requirement has either a test or an entry in elsewhere, the
// reason why it has none here. sections has the number of requirements in each section. The IDs of
// requirements are section/1, section/2 and so on.
func (r Requirements) ExpectComplete(t *testing.T, sections map[string]int, elsewhere map[string]string) {
	t.Helper()
	known := map[string]bool{}
	for section, n := range sections {
		for i := 1; i <= n; i++ {
			id := fmt.Sprintf("%s/%d", section, i)
			known[id] = true
			hasTest := r[id] != nil
			if _, hasReason := elsewhere[id]; hasTest == hasReason {
				t.Errorf("%s: want a test or a reason why there is none, and not both", id)
			}
		}
	}
	for id := range r {
		if !known[id] {
			t.Errorf("%s: no such requirement", id)
		}
	}
	for id, why := range elsewhere {
		if !known[id] || strings.TrimSpace(why) == "" {
			t.Errorf("%s: no such requirement, or no reason", id)
		}
	}
}
