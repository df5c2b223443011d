package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/verbs"
)

// paperLab has benches without anything on them, but for the quirks of the device.
type paperLab struct {
	caps verbs.Caps
	fail error // what Try returns instead
}

type paperWorld struct{ quirks []string }

func (paperWorld) Now() time.Duration    { return 0 }
func (paperWorld) Sleep(time.Duration)   {}
func (paperWorld) Compute(time.Duration) {}
func (paperWorld) Go(string, func() error) conformance.Task {
	panic("paper has no tasks")
}

func (l *paperLab) Try(_ context.Context, job conformance.Job, body func(*conformance.Bench) error) error {
	if l.fail != nil {
		return l.fail
	}
	return body(&conformance.Bench{World: paperWorld{job.Quirks}, Caps: l.caps, Record: job.Record})
}

// without is a body that is violated on a device with the quirk.
func without(quirk string) func(*conformance.Bench) error {
	return func(b *conformance.Bench) error {
		if slices.Contains(b.World.(paperWorld).quirks, quirk) {
			return conformance.Violated("a sound device", quirk)
		}
		return nil
	}
}

func paperCase(id string, mutants ...string) *conformance.Case {
	run := func(*conformance.Bench) error { return nil }
	if len(mutants) > 0 {
		run = without(mutants[0])
	}
	return &conformance.Case{
		ID: id, Title: "t", Cite: conformance.Cite{Doc: "RFC 1", Section: "2.3", Rows: []string{"r/1"}}, Level: conformance.Must,
		Sends: "s", Expects: "e", Mutants: mutants, Run: run,
	}
}

func TestVerdicts(t *testing.T) {
	violated := conformance.Violated("one ACK", "two")
	for _, tc := range []struct {
		name      string
		caps      verbs.Caps
		lab, body error
		deviates  bool
		want      conformance.Verdict
		says      string
	}{
		{name: "met", want: conformance.VerdictPass},
		{name: "met though it is known not to be", deviates: true, want: conformance.VerdictStale, says: "delete its deviation (firmware 7)"},
		{name: "not met", body: violated, want: conformance.VerdictFail, says: "want one ACK, got two"},
		{name: "not met, wrapped", body: fmt.Errorf("second round: %w", violated), want: conformance.VerdictFail, says: "second round"},
		{name: "known not to be met", body: violated, deviates: true, want: conformance.VerdictDeviates, says: "firmware 7 (want one ACK"},
		{name: "claimed and refused", body: &verbs.OpError{Op: "create_srq", Err: verbs.ErrNotSupported}, want: conformance.VerdictFail, says: "claims the capability and refuses"},
		{name: "a wire that cannot carry it", body: fmt.Errorf("IP options: %w", conformance.ErrCannot), want: conformance.VerdictUnsupported, says: "IP options"},
		{name: "a device that cannot be set up so", lab: &conformance.SetupError{Reason: "it has no markers"}, want: conformance.VerdictUnsupported, says: "no markers"},
		{name: "a case at fault", body: errors.New("index out of range"), want: conformance.VerdictBroken, says: "index"},
		{name: "a case without end", lab: &conformance.HangError{Waiting: "main in poll"}, deviates: true, want: conformance.VerdictBroken, says: "main in poll"},
		{name: "a capability that is not claimed", caps: verbs.CapXRC, want: conformance.VerdictUnsupported, says: "does not claim"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := paperCase("a/b/c")
			c.Needs = tc.caps
			c.Run = func(*conformance.Bench) error { return tc.body }
			opt := conformance.Options{}
			if tc.deviates {
				opt.Deviations = map[string]string{"a/b/c": "firmware 7"}
			}
			res := conformance.Judge(t.Context(), &paperLab{fail: tc.lab}, c, opt)
			if res.Verdict != tc.want {
				t.Errorf("verdict %s, want %s (%v)", res.Verdict, tc.want, res.Err)
			}
			if got := fmt.Sprint(res.Err); tc.says != "" && !strings.Contains(got, tc.says) || (res.Err == nil) != (tc.says == "") {
				t.Errorf("it says %q, want %q in it", got, tc.says)
			}
		})
	}
}

func TestRunKeepsTheOrderOfTheCases(t *testing.T) {
	var cases []*conformance.Case
	for i := range 50 {
		cases = append(cases, paperCase(fmt.Sprintf("a/b/%d", i)))
	}
	told := 0
	r := conformance.Runner{Lab: new(paperLab), Workers: 4, Done: func(conformance.Result) { told++ }}
	results, err := r.Run(t.Context(), cases)
	if err != nil || told != len(cases) {
		t.Fatalf("told of %d results, %v", told, err)
	}
	for i, res := range results {
		if res.Case != cases[i] || res.Verdict != conformance.VerdictPass {
			t.Errorf("result %d is of %v: %s", i, res.Case, res.Verdict)
		}
	}
}

func TestRunStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	first := paperCase("a/b/first")
	second := paperCase("a/b/second")
	second.Run = func(*conformance.Bench) error { cancel(); return ctx.Err() }
	r := conformance.Runner{Lab: new(paperLab), Workers: 1}
	results, err := r.Run(ctx, []*conformance.Case{first, second, paperCase("a/b/third")})
	if !errors.Is(err, context.Canceled) || len(results) != 1 || results[0].Case != first {
		t.Errorf("got %d results and %v", len(results), err)
	}
}

func TestProofs(t *testing.T) {
	good := paperCase("a/b/good", "Flaw", "Foreign")
	blind := paperCase("a/b/blind", "Flaw")
	blind.Run = func(*conformance.Bench) error { return nil }
	sour := paperCase("a/b/sour", "Flaw")
	sour.Run = func(*conformance.Bench) error { return conformance.Violated("x", "y") }
	absent := paperCase("a/b/absent", "Flaw")
	absent.Needs = verbs.CapXRC
	r := conformance.Runner{Lab: new(paperLab), Workers: 2}
	proofs, err := r.Prove(t.Context(), []*conformance.Case{good, blind, sour, absent}, func(q string) bool { return q == "Flaw" })
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"a/b/blind": "pass with Flaw, which it is to catch", "a/b/sour": "fail on the sound device"}
	for _, p := range proofs {
		if len(p.Flawed) != 1 {
			t.Errorf("%s was tried with %d mutants", p.Case.ID, len(p.Flawed))
		}
		if got := errors.Join(p.Errs()...); (got == nil) != (want[p.Case.ID] == "") || !strings.Contains(fmt.Sprint(got), want[p.Case.ID]) {
			t.Errorf("%s: %v, want %q", p.Case.ID, got, want[p.Case.ID])
		}
	}
	if len(proofs) != 4 {
		t.Errorf("%d proofs", len(proofs))
	}
	caught, err := r.Matrix(t.Context(), []*conformance.Case{good, blind}, []string{"Flaw", "Other"})
	if err != nil || !slices.Equal(caught["Flaw"], []string{"a/b/good"}) || len(caught["Other"]) != 0 {
		t.Errorf("caught %v, %v", caught, err)
	}
}
