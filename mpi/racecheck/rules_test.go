package racecheck_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/mutant"
	"github.com/fabrictest/fabrictest/internal/testutil"
)

var (
	withoutRules = flag.Bool("without", false, "remove each rule of the checker, and check that a program notices")
	part         = testutil.PartFlag()
)

// rules are conditions of the checker that look removable.
var rules = []struct{ Name, File, Is, Without string }{
	// Overlap and conflict.
	{"accesses to adjacent bytes do not race", "access.go", "a.from < b.to && b.from < a.to", "a.from <= b.to && b.from <= a.to"},
	{"two reads do not conflict", "access.go", "if !a.kind.writes() && !b.kind.writes() {", "if false {"},
	{"two accumulates do not conflict", "access.go", "return !(a.kind.isAtomic() && b.kind.isAtomic() && a.sameElements(b))", "return true"},
	{"accumulates of two types conflict", "access.go", "a.element == b.element && a.element.Size > 0", "a.element.Size == b.element.Size"},
	{"accumulates of displaced elements conflict", "access.go", "a.from%uintptr(a.element.Size) == b.from%uintptr(b.element.Size)", "true"},

	// Completion.
	{"an access that is not complete is not ordered", "clock.go", "e.at > 0 && e.at <= c[e.rank]", "e.at <= c[e.rank]"},
	{"a local flush does not complete at the target", "epoch.go", "if !isLocal {\n\t\t\to.completeAtTarget(at)", "if true {\n\t\t\to.completeAtTarget(at)"},
	{"data that was fetched has been read", "operation.go", "if o.remote != nil && o.reads {", "if false {"},
	{"a request of a put does not complete at the target", "operation.go", "if o.remote != nil && o.reads {", "if o.remote != nil {"},
	{"a flush completes the operations on its target only", "epoch.go", "if target != AllTargets && o.target != target {\n\t\t\tcontinue", "if false {\n\t\t\tcontinue"},
	{"complete does not complete at the target", "epoch.go", "c.completeOps(r, AllTargets, true)", "c.completeOps(r, AllTargets, false)"},
	{"wait completes at the target", "epoch.go", "for _, o := range e.completes[number] {\n\t\t\to.completeAtTarget(at)\n\t\t}", "_ = at"},
	{"an opening fence completes nothing", "epoch.go", "if endsEpoch {", "if true {"},

	// Order of ranks.
	{"a message orders its receiver", "operation.go", "r.clock.join(o.message.sent)", ""},
	{"a synchronous send orders its sender", "operation.go", "r.clock.join(o.sync.received)", ""},
	{"only the root of a broadcast orders others", "collective.go", "return other == p.root", "return true"},
	{"a gather orders its root only", "collective.go", "return p.rank == p.root", "return true"},
	{"a scan orders later ranks only", "collective.go", "return other < p.rank", "return true"},
	{"a collective operation orders when it has completed", "collective.go", "x.starts[comm.Rank] = o.start", "x.starts[comm.Rank] = c.ranks[p.Rank].clock"},
	{"post orders the operations of its epoch", "epoch.go", "q.op.remote.start = q.op.remote.start.joined(posted)", ""},
	{"operations wait for their post", "window.go", "if number >= len(e.posts) {", "if false {"},
	{"complete orders the rank that waits", "epoch.go", "c.ranks[p.Rank].clock.join(e.completed[number])", ""},
	{"a fence orders operations after the fence of the target", "window.go", "o.remote.start = o.remote.start.joined(target.fenceClocks[origin.fences])", "_ = target"},

	// Locks.
	{"an exclusive lock excludes", "access.go", "return a.done.isBefore(b.start) || a.excludes(b) != nil", "return a.done.isBefore(b.start)"},
	{"shared locks do not", "access.go", "&& (s.exclusive || t.exclusive)", ""},
	{"a lock excludes on its window and target only", "access.go", "s.lock == t.lock && ", "s.lock.w != nil && "},
	{"a lock orders only accesses under it", "epoch.go", "r.sections[i] = &section{lock: lockID{w, i}, exclusive: exclusive}\n", "r.sections[i] = &section{lock: lockID{w, i}, exclusive: exclusive}\n\t\t\tfor k := range c.ranks {\n\t\t\t\tc.ranks[p.Rank].clock.join(c.ranks[k].clock)\n\t\t\t}\n"},
	{"data read under a lock orders", "checker.go", "c.ranks[a.place.Rank].clock.join(s.released)", ""},
	{"the owner's accesses are under its lock", "checker.go", "a.sections = append(a.sections, s)", "_ = s"},

	// Memory.
	{"a store without an annotation is found", "shadow.go", "c.touch(place, Store, ", "_ = place\n\t\tc.touch(p, Load, "},
	{"what an operation writes is no store", "shadow.go", "|| isExplained(i)", "|| isExplained(i) && false"},
	{"an operation may write until it is complete", "shadow.go", "return a.done.at > 0 })\n\tlast", "return true })\n\tlast"},
	{"a found store is after what its rank released before", "shadow.go", "c.tick(p.Rank) // what", "// what"},
	{"accesses that a rank does not know of are kept", "index.go", "return a.done.isBefore(known)", "return a.done.at > 0"},
	{"an access is superseded by one that covers it only", "access.go", "|| a.from > old.from || a.to < old.to ", ""},
	{"an access is not superseded by one under a lock", "access.go", "if len(a.sections) > 0 || len(old.sections) > 0 {", "if false {"},
}

// mutants returns a mutant without the rule for each rule.
func mutants(t *testing.T) (all []mutant.Mutant) {
	for _, r := range rules {
		text := string(must.Get(os.ReadFile(r.File))(t))
		at := strings.Index(text, r.Is)
		if strings.Count(text, r.Is) != 1 {
			t.Fatalf("%s: %s has %q %d times", r.Name, r.File, r.Is, strings.Count(text, r.Is))
		}
		from := strings.LastIndexByte(text[:at], '\n') + 1
		to := at + len(r.Is) + strings.IndexByte(text[at+len(r.Is):], '\n')
		old := text[from:to]
		all = append(all, mutant.Mutant{Name: r.Name, Hunks: []mutant.Hunk{{
			File: "mpi/racecheck/" + r.File, Old: strings.Split(old, "\n"), New: strings.Split(strings.Replace(old, r.Is, r.Without, 1), "\n"),
		}}})
	}
	return all
}

// Every rule is found in its file. With -without, a program gets another verdict when it is removed.
func TestEveryRuleIsNeeded(t *testing.T) {
	dir := t.TempDir()
	overlay := must.Get(mutant.Overlay("../..", dir, mutants(t)))(t)
	if !*withoutRules {
		return
	}
	program := filepath.Join(dir, "mutants.test")
	if out, err := exec.Command("go", "test", "-c", "-overlay="+overlay, "-o="+program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for i, r := range rules {
		if !part.Has(i) {
			continue
		}
		t.Run(r.Name, func(t *testing.T) {
			cmd := exec.Command(program, "-test.skip=TestEveryRuleIsNeeded", "-test.failfast", "-test.timeout=2m")
			cmd.Env = append(os.Environ(), mutant.Variable+"="+r.Name)
			out, err := cmd.CombinedOutput()
			text := string(out)
			if err == nil || !strings.Contains(text, "--- FAIL: ") && !strings.Contains(text, "panic: ") {
				t.Fatalf("no program gets another verdict: %v\n%s", err, text)
			}
			for line := range strings.Lines(text) {
				if program, verdict, found := strings.Cut(line, ": "+string(falseNegative)); found {
					t.Logf("missed: %s%s", program, verdict)
					return
				}
				if program, verdict, found := strings.Cut(line, ": "+string(falsePositive)); found {
					t.Logf("reported: %s%s", program, verdict)
					return
				}
			}
			t.Log(text)
		})
	}
}
