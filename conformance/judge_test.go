package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/verbs"
)

// paperLab has benches with nothing on them but a device that says what it is.
type paperLab struct {
	caps      verbs.Caps
	transport verbs.Transport
	fail      error // what Try returns instead
	// picky devices refuse to be set up in any way, and stubborn ones to be opened.
	picky, stubborn bool
}

// paperDevice says what it is, and has nothing else.
type paperDevice struct {
	verbs.Context
	transport verbs.Transport
}

func (d paperDevice) Info() verbs.DeviceInfo { return verbs.DeviceInfo{Transport: d.transport} }

func (d paperDevice) QueryPort(uint8) (verbs.PortAttr, error) { return verbs.PortAttr{}, nil }

type paperWorld struct{}

func (paperWorld) Now() time.Duration    { return 0 }
func (paperWorld) Sleep(time.Duration)   {}
func (paperWorld) Compute(time.Duration) {}
func (paperWorld) Go(string, func() error) conformance.Task {
	panic("paper has no tasks")
}

func (l *paperLab) Try(_ context.Context, job conformance.Job, body func(*conformance.Bench) error) error {
	switch {
	case l.fail != nil:
		return l.fail
	case l.stubborn, l.picky && job.Setup != conformance.Setup{}:
		return &conformance.SetupError{Reason: "not I"}
	}
	return body(&conformance.Bench{World: paperWorld{}, Device: paperDevice{transport: l.transport}, Caps: l.caps, Record: job.Record})
}

func paperCase(id string, mutants ...string) *conformance.Case {
	return &conformance.Case{
		ID: id, Title: "t", Cite: conformance.Cite{Doc: "RFC 1", Section: "2.3", Rows: []string{"r/1"}}, Level: conformance.Must,
		Sends: "s", Expects: "e", Mutants: mutants, Run: func(*conformance.Bench) error { return nil },
	}
}

func TestVerdicts(t *testing.T) {
	violated := conformance.Violated("one ACK", "two")
	crash := fmt.Errorf("case: %w", &conformance.CrashError{Cause: errors.New("kernel panic")})
	for _, tc := range []struct {
		name      string
		caps      verbs.Caps
		lab, body error
		deviates  bool
		sometimes bool
		dangerous bool
		want      conformance.Verdict
		says      string
	}{
		{name: "met", want: conformance.VerdictPass},
		{name: "met though it is known not to be", deviates: true, want: conformance.VerdictStale, says: "delete its deviation (firmware 7)"},
		{name: "met by chance", deviates: true, sometimes: true, want: conformance.VerdictPass},
		{name: "not met by chance", body: violated, deviates: true, sometimes: true, want: conformance.VerdictDeviates, says: "want one ACK, got two"},
		{name: "not met", body: violated, want: conformance.VerdictFail, says: "want one ACK, got two"},
		{name: "not met, wrapped", body: fmt.Errorf("second round: %w", violated), want: conformance.VerdictFail, says: "second round"},
		{name: "known not to be met", body: violated, deviates: true, want: conformance.VerdictDeviates, says: "want one ACK, got two"},
		{name: "claimed and refused, which is known", body: &verbs.OpError{Op: "create_srq", Err: verbs.ErrNotSupported}, deviates: true, want: conformance.VerdictDeviates, says: "claims the capability and refuses"},
		{name: "claimed and refused", body: &verbs.OpError{Op: "create_srq", Err: verbs.ErrNotSupported}, want: conformance.VerdictFail, says: "claims the capability and refuses"},
		{name: "a wire that cannot carry it", body: fmt.Errorf("IP options: %w", conformance.ErrCannot), want: conformance.VerdictUnsupported, says: "IP options"},
		{name: "a lab that cannot set it up so", lab: fmt.Errorf("cables of 9000: %w", conformance.ErrCannot), want: conformance.VerdictUnsupported, says: "cables"},
		{name: "a choice that it is not about", body: &conformance.SetupError{Reason: "it asks for no CRC"}, want: conformance.VerdictUnsupported, says: "no CRC"},
		{name: "a case at fault", body: errors.New("index out of range"), want: conformance.VerdictBroken, says: "index"},
		{name: "a case without end", lab: &conformance.HangError{Waiting: "main in poll"}, deviates: true, want: conformance.VerdictBroken, says: "main in poll"},
		{name: "a crash of a case that may crash", lab: crash, dangerous: true, want: conformance.VerdictFail, says: "want a device that is alive, got case: the device's host did not outlive the case: kernel panic"},
		{name: "a crash that is known", lab: crash, dangerous: true, deviates: true, want: conformance.VerdictDeviates, says: "kernel panic"},
		{name: "a crash out of nowhere", lab: crash, want: conformance.VerdictBroken, says: "kernel panic"},
		{name: "a capability that is not claimed", caps: verbs.CapXRC, want: conformance.VerdictUnsupported, says: "does not claim XRC"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := paperCase("a/b/c")
			c.Needs = tc.caps
			if tc.dangerous {
				c.Labels = []string{conformance.Dangerous}
			}
			c.Run = func(*conformance.Bench) error { return tc.body }
			opt := conformance.Options{}
			if tc.deviates {
				opt.Deviations = map[string]conformance.Deviation{"a/b/c": {Reason: "firmware 7", Sometimes: tc.sometimes}}
			}
			res := conformance.Judge(t.Context(), &paperLab{fail: tc.lab}, c, opt)
			if res.Verdict != tc.want {
				t.Errorf("verdict %s, want %s (%v)", res.Verdict, tc.want, res.Err)
			}
			if known := res.Verdict == conformance.VerdictDeviates || res.Verdict == conformance.VerdictStale; known != (res.Deviation == "firmware 7") {
				t.Errorf("%s with the deviation %q", res.Verdict, res.Deviation)
			}
			if got := fmt.Sprint(res.Err); tc.says != "" && !strings.Contains(got, tc.says) || (res.Err == nil) != (tc.says == "") {
				t.Errorf("it says %q, want %q in it", got, tc.says)
			}
		})
	}
}

// A refusal says that something is not supported only if it was never claimed.
func TestRefusalsAreHeldAgainstClaims(t *testing.T) {
	const iwarp = verbs.TransportIWARP
	for name, tc := range map[string]struct {
		lab      paperLab
		setup    conformance.Setup
		needs    verbs.Caps
		deviates bool
		want     conformance.Verdict
		says     string
	}{
		"markers, and it talks MPA":         {lab: paperLab{transport: iwarp, caps: verbs.CapRC}, setup: conformance.Setup{Markers: true}, want: conformance.VerdictFail, says: "as it claims to: asks for markers, got it refuses: not I"},
		"which is known":                    {lab: paperLab{transport: iwarp, caps: verbs.CapRC}, setup: conformance.Setup{Markers: true}, deviates: true, want: conformance.VerdictDeviates, says: "refuses"},
		"no CRC, and it is of InfiniBand":   {lab: paperLab{caps: verbs.CapRC}, setup: conformance.Setup{NoCRC: true}, want: conformance.VerdictUnsupported, says: "does not claim MPA"},
		"no CRC, and it is for datagrams":   {lab: paperLab{transport: iwarp, caps: verbs.CapUD}, setup: conformance.Setup{NoCRC: true}, want: conformance.VerdictUnsupported, says: "does not claim MPA"},
		"reliable, and it is for datagrams": {lab: paperLab{transport: iwarp, caps: verbs.CapUD}, setup: conformance.Setup{Reliable: true}, want: conformance.VerdictFail, says: "refuses"},
		"isolated, and it is not":           {lab: paperLab{transport: iwarp, caps: verbs.CapRC}, setup: conformance.Setup{Isolate: true}, want: conformance.VerdictUnsupported, says: "datagram-iWARP"},
		"IPv4":                              {lab: paperLab{caps: verbs.CapRC}, setup: conformance.Setup{Family: 4}, want: conformance.VerdictFail, says: "IPv4"},
		"two addresses and an MTU":          {lab: paperLab{}, setup: conformance.Setup{TwoAddresses: true, MTU: 1500}, want: conformance.VerdictFail, says: "two addresses, an MTU of 1500"},
		"nothing at all":                    {lab: paperLab{stubborn: true}, want: conformance.VerdictBroken, says: "to be as it comes: not I"},
		"and it needs what it has not":      {lab: paperLab{caps: verbs.CapRC}, needs: verbs.CapRC | verbs.CapUD | verbs.CapAtomics, want: conformance.VerdictUnsupported, says: "does not claim UD, atomics"},
	} {
		t.Run(name, func(t *testing.T) {
			c := paperCase("a/b/c")
			c.Setup, c.Needs = tc.setup, tc.needs
			tc.lab.picky = true
			opt := conformance.Options{}
			if tc.deviates {
				opt.Deviations = map[string]conformance.Deviation{"a/b/c": {Reason: "firmware 7"}}
			}
			res := conformance.Judge(t.Context(), &tc.lab, c, opt)
			if res.Verdict != tc.want || !strings.Contains(fmt.Sprint(res.Err), tc.says) {
				t.Errorf("%s: %v; want %s: %q", res.Verdict, res.Err, tc.want, tc.says)
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

func TestSchedulesAreThoseAskedFor(t *testing.T) {
	const usual = 7
	for _, asked := range []int{0, 3} {
		c := paperCase("a/b/c")
		want := usual
		if asked > 0 {
			want = asked
		}
		rounds := 0
		c.Run = func(b *conformance.Bench) error {
			total := b.Schedules(usual)
			for i := range total {
				b.Progress(i, total)
				rounds++
			}
			return nil
		}
		var told []string
		opt := conformance.Options{Schedules: asked, Progress: func(of *conformance.Case, done, total int) {
			told = append(told, fmt.Sprintf("%s %d/%d", of.ID, done, total))
		}}
		if res := conformance.Judge(t.Context(), new(paperLab), c, opt); res.Verdict != conformance.VerdictPass || rounds != want || len(told) != want || told[1] != fmt.Sprintf("a/b/c 1/%d", want) {
			t.Errorf("asked for %d: %d schedules, told of %q", asked, rounds, told)
		}
		opt.Progress = nil // nobody listens
		conformance.Judge(t.Context(), new(paperLab), c, opt)
	}
}
