package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/verbs"
)

// fakeLab makes benches whose device has only Info and QueryPort.
type fakeLab struct {
	caps      verbs.Caps
	transport verbs.Transport
	fail      error // result of WithBench, if not nil
	// rejectSetup rejects every setup but the default, and rejectOpen that too.
	rejectSetup, rejectOpen bool
	virtual                 bool
	queries                 int32 // of the port, changed atomically
}

// fakeDevice implements Info and QueryPort only.
type fakeDevice struct {
	verbs.Context
	*fakeLab
}

func (d fakeDevice) Info() verbs.DeviceInfo { return verbs.DeviceInfo{Transport: d.transport} }

func (d fakeDevice) QueryPort(uint8) (verbs.PortAttr, error) {
	atomic.AddInt32(&d.queries, 1)
	return verbs.PortAttr{}, nil
}

type fakeRuntime struct{}

func (fakeRuntime) Now() time.Duration                       { return 0 }
func (fakeRuntime) Sleep(time.Duration)                      {}
func (fakeRuntime) Compute(time.Duration)                    {}
func (fakeRuntime) Go(string, func() error) conformance.Task { panic("fakeRuntime has no tasks") }

func (l *fakeLab) WithBench(_ context.Context, job conformance.BenchSpec, body func(*conformance.Bench) error) error {
	switch {
	case l.fail != nil:
		return l.fail
	case l.rejectOpen, l.rejectSetup && job.Setup != conformance.Setup{}:
		return &conformance.SetupError{Reason: "not supported"}
	}
	return body(&conformance.Bench{Runtime: fakeRuntime{}, Device: fakeDevice{fakeLab: l}, Caps: l.caps, Record: job.Record, Virtual: l.virtual})
}

func newCase(id string, defects ...string) *conformance.Case {
	return &conformance.Case{
		ID: id, Title: "t", Cite: conformance.Cite{Doc: "RFC 1", Section: "2.3", Rows: []string{"r/1"}}, Level: conformance.Must,
		Sends: "s", Expects: "e", Defects: defects, Run: func(*conformance.Bench) error { return nil },
	}
}

func TestJudgeVerdicts(t *testing.T) {
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
		wantErr   string
	}{
		{name: "pass", want: conformance.VerdictPass},
		{name: "pass with a deviation", deviates: true, want: conformance.VerdictStale, wantErr: "delete its deviation (firmware 7)"},
		{name: "pass with an intermittent deviation", deviates: true, sometimes: true, want: conformance.VerdictPass},
		{name: "violation with an intermittent deviation", body: violated, deviates: true, sometimes: true, want: conformance.VerdictDeviates, wantErr: "want one ACK, got two"},
		{name: "violation", body: violated, want: conformance.VerdictFail, wantErr: "want one ACK, got two"},
		{name: "wrapped violation", body: fmt.Errorf("second round: %w", violated), want: conformance.VerdictFail, wantErr: "second round"},
		{name: "violation with a deviation", body: violated, deviates: true, want: conformance.VerdictDeviates, wantErr: "want one ACK, got two"},
		{name: "claimed feature rejected, with a deviation", body: &verbs.OpError{Op: "create_srq", Err: verbs.ErrNotSupported}, deviates: true, want: conformance.VerdictDeviates, wantErr: "claims the capability and rejects"},
		{name: "claimed feature rejected", body: &verbs.OpError{Op: "create_srq", Err: verbs.ErrNotSupported}, want: conformance.VerdictFail, wantErr: "claims the capability and rejects"},
		{name: "wire cannot send the packet", body: fmt.Errorf("IP options: %w", conformance.ErrBenchCannot), want: conformance.VerdictUnsupported, wantErr: "IP options"},
		{name: "lab cannot make the setup", lab: fmt.Errorf("links of 9000: %w", conformance.ErrBenchCannot), want: conformance.VerdictUnsupported, wantErr: "links"},
		{name: "violation, and the bench cannot clean up", body: errors.Join(violated, conformance.ErrBenchCannot), want: conformance.VerdictFail, wantErr: "want one ACK, got two"},
		{name: "violation in a setup of the device's choice", body: errors.Join(&conformance.SetupError{Reason: "no CRC"}, violated), want: conformance.VerdictFail, wantErr: "want one ACK, got two"},
		{name: "case does not apply", body: &conformance.SetupError{Reason: "it asks for no CRC"}, want: conformance.VerdictUnsupported, wantErr: "no CRC"},
		{name: "other error", body: errors.New("index out of range"), want: conformance.VerdictBroken, wantErr: "index"},
		{name: "hang", lab: &conformance.HangError{Waiting: "main in poll"}, deviates: true, want: conformance.VerdictBroken, wantErr: "main in poll"},
		{name: "crash in a dangerous case", lab: crash, dangerous: true, want: conformance.VerdictFail, wantErr: "want a device that is alive, got case: the device's host crashed during the case: kernel panic"},
		{name: "crash in a dangerous case with a deviation", lab: crash, dangerous: true, deviates: true, want: conformance.VerdictDeviates, wantErr: "kernel panic"},
		{name: "crash in another case", lab: crash, want: conformance.VerdictBroken, wantErr: "kernel panic"},
		{name: "capability not claimed", caps: verbs.CapXRC, want: conformance.VerdictUnsupported, wantErr: "does not claim XRC"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newCase("a/b/c")
			c.Needs = tc.caps
			if tc.dangerous {
				c.Labels = []string{conformance.Dangerous}
			}
			c.Run = func(*conformance.Bench) error { return tc.body }
			opt := conformance.Options{}
			if tc.deviates {
				opt.Deviations = map[string]conformance.Deviation{"a/b/c": {Reason: "firmware 7", Intermittent: tc.sometimes}}
			}
			res := conformance.Judge(t.Context(), &fakeLab{fail: tc.lab}, c, opt)
			if res.Verdict != tc.want {
				t.Errorf("verdict %s, want %s (%v)", res.Verdict, tc.want, res.Err)
			}
			if known := res.Verdict == conformance.VerdictDeviates || res.Verdict == conformance.VerdictStale; known != (res.Deviation == "firmware 7") {
				t.Errorf("%s with the deviation %q", res.Verdict, res.Deviation)
			}
			if got := fmt.Sprint(res.Err); tc.wantErr != "" && !strings.Contains(got, tc.wantErr) || (res.Err == nil) != (tc.wantErr == "") {
				t.Errorf("error %q, want %q in it", got, tc.wantErr)
			}
		})
	}
}

// A run with a verdict that is not acceptable ends with an exit code other than 0.
func TestOnlySomeVerdictsAreAcceptable(t *testing.T) {
	for v, want := range map[conformance.Verdict]bool{
		conformance.VerdictPass: true, conformance.VerdictUnsupported: true, conformance.VerdictDeviates: true,
		conformance.VerdictFail: false, conformance.VerdictStale: false, conformance.VerdictBroken: false, "": false,
	} {
		if v.Acceptable() != want {
			t.Errorf("%q: %v, want %v", v, !want, want)
		}
	}
}

// A rejected setup is unsupported only if the device does not claim the feature.
func TestRejectedSetupIsFailureIfClaimed(t *testing.T) {
	const iwarp = verbs.TransportIWARP
	for name, tc := range map[string]struct {
		lab      fakeLab
		setup    conformance.Setup
		needs    verbs.Caps
		deviates bool
		want     conformance.Verdict
		wantErr  string
	}{
		"markers on an MPA device":   {lab: fakeLab{transport: iwarp, caps: verbs.CapRC}, setup: conformance.Setup{Markers: true}, want: conformance.VerdictFail, wantErr: "it claims to support: requests MPA markers, got rejected: not supported"},
		"markers with a deviation":   {lab: fakeLab{transport: iwarp, caps: verbs.CapRC}, setup: conformance.Setup{Markers: true}, deviates: true, want: conformance.VerdictDeviates, wantErr: "rejected"},
		"no CRC on InfiniBand":       {lab: fakeLab{caps: verbs.CapRC}, setup: conformance.Setup{NoCRC: true}, want: conformance.VerdictUnsupported, wantErr: "does not claim MPA"},
		"no CRC on datagram-iWARP":   {lab: fakeLab{transport: iwarp, caps: verbs.CapUD}, setup: conformance.Setup{NoCRC: true}, want: conformance.VerdictUnsupported, wantErr: "does not claim MPA"},
		"reliable on datagram-iWARP": {lab: fakeLab{transport: iwarp, caps: verbs.CapUD}, setup: conformance.Setup{Reliable: true}, want: conformance.VerdictFail, wantErr: "rejected"},
		"isolated on iWARP":          {lab: fakeLab{transport: iwarp, caps: verbs.CapRC}, setup: conformance.Setup{Isolate: true}, want: conformance.VerdictUnsupported, wantErr: "datagram-iWARP"},
		"IPv4":                       {lab: fakeLab{caps: verbs.CapRC}, setup: conformance.Setup{Family: 4}, want: conformance.VerdictFail, wantErr: "IPv4"},
		"two addresses and an MTU":   {lab: fakeLab{}, setup: conformance.Setup{TwoAddresses: true, MTU: 1500}, want: conformance.VerdictFail, wantErr: "two addresses, an MTU of 1500"},
		"default settings":           {lab: fakeLab{rejectOpen: true}, want: conformance.VerdictBroken, wantErr: "with its default settings: not supported"},
		"capabilities not claimed":   {lab: fakeLab{caps: verbs.CapRC}, needs: verbs.CapRC | verbs.CapUD | verbs.CapAtomics, want: conformance.VerdictUnsupported, wantErr: "does not claim UD, atomics"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCase("a/b/c")
			c.Setup, c.Needs = tc.setup, tc.needs
			tc.lab.rejectSetup = true
			opt := conformance.Options{}
			if tc.deviates {
				opt.Deviations = map[string]conformance.Deviation{"a/b/c": {Reason: "firmware 7"}}
			}
			res := conformance.Judge(t.Context(), &tc.lab, c, opt)
			if res.Verdict != tc.want || !strings.Contains(fmt.Sprint(res.Err), tc.wantErr) {
				t.Errorf("%s: %v; want %s: %q", res.Verdict, res.Err, tc.want, tc.wantErr)
			}
		})
	}
}

// In virtual time, verb calls take no time.
func TestCallsAreMeasuredInRealTime(t *testing.T) {
	for virtual, want := range map[bool]bool{true: false, false: true} {
		lab := &fakeLab{virtual: virtual}
		if res := conformance.Judge(t.Context(), lab, newCase("a/b/c"), conformance.Options{}); (lab.queries > 0) != want || res.Took <= 0 {
			t.Errorf("virtual %v: %d calls, took %v", virtual, lab.queries, res.Took)
		}
	}
}

func TestRunReturnsResultsInOrderOfCases(t *testing.T) {
	var cases []*conformance.Case
	for i := range 50 {
		cases = append(cases, newCase(fmt.Sprintf("a/b/%d", i)))
	}
	reported := 0
	r := conformance.Runner{Lab: new(fakeLab), Workers: 4, Done: func(conformance.Result) { reported++ }}
	results, err := r.Run(t.Context(), cases)
	if err != nil || reported != len(cases) {
		t.Fatalf("%d results reported, %v", reported, err)
	}
	for i, res := range results {
		if res.Case != cases[i] || res.Verdict != conformance.VerdictPass {
			t.Errorf("result %d is of %v: %s", i, res.Case, res.Verdict)
		}
	}
}

func TestRunStopsWhenContextIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	first := newCase("a/b/first")
	second := newCase("a/b/second")
	second.Run = func(*conformance.Bench) error { cancel(); return ctx.Err() }
	r := conformance.Runner{Lab: new(fakeLab), Workers: 1}
	results, err := r.Run(ctx, []*conformance.Case{first, second, newCase("a/b/third")})
	if !errors.Is(err, context.Canceled) || len(results) != 1 || results[0].Case != first {
		t.Errorf("got %d results and %v", len(results), err)
	}
}

func TestFailedCaseIsRepeatedOnBusyMachine(t *testing.T) {
	for _, tc := range []struct {
		name     string
		share    float64
		failures int // attempts that fail; -1: the first crashes the device's host
		label    string
		attempts int
		want     conformance.Verdict
	}{
		{"busy, crashes", 0.5, -1, "", 1, conformance.VerdictBroken},
		{"busy, fails once", 0.5, 1, "", 2, conformance.VerdictPass},
		{"busy, fails twice", 0.5, 2, "", 3, conformance.VerdictPass},
		{"busy, always fails", 0.4, 9, "", 3, conformance.VerdictFail},
		{"starved, always fails", 0.5, 9, "", 3, conformance.VerdictStarved},
		{"busy, passes", 0.5, 0, "", 1, conformance.VerdictPass},
		{"just busy, fails once", 0.2, 1, "", 2, conformance.VerdictPass},
		{"quiet, fails once", 0.1, 1, "", 1, conformance.VerdictFail},
		{"busy, dangerous", 0.5, 1, conformance.Dangerous, 1, conformance.VerdictFail},
	} {
		t.Run(tc.name, func(t *testing.T) {
			conformance.SetOthersShare(t, tc.share)
			attempts, repeated := 0, 0
			c := newCase("a/b/c")
			c.Labels = []string{tc.label}
			c.Run = func(*conformance.Bench) error {
				if attempts++; tc.failures < 0 {
					return &conformance.CrashError{Cause: errors.New("kernel panic")}
				}
				if attempts <= tc.failures {
					return conformance.Violated("an ACK", "none in 1 s")
				}
				return nil
			}
			r := conformance.Runner{Lab: new(fakeLab), Workers: 1, BeforeRepeat: func(first conformance.Result, others float64) {
				if repeated++; first.Verdict != conformance.VerdictFail || others != tc.share {
					t.Errorf("repeated after %s, others %v", first.Verdict, others)
				}
			}}
			results, err := r.Run(t.Context(), []*conformance.Case{c})
			if err != nil || results[0].Verdict != tc.want || attempts != tc.attempts || repeated != tc.attempts-1 {
				t.Errorf("%d attempts, %d repeats, %s, %v", attempts, repeated, results[0].Verdict, err)
			}
		})
	}
}

func TestOptionsSetNumberOfSchedules(t *testing.T) {
	const usual = 7
	for _, asked := range []int{0, 3} {
		c := newCase("a/b/c")
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
		var reported []string
		opt := conformance.Options{Schedules: asked, Progress: func(of *conformance.Case, done, total int) {
			reported = append(reported, fmt.Sprintf("%s %d/%d", of.ID, done, total))
		}}
		if res := conformance.Judge(t.Context(), new(fakeLab), c, opt); res.Verdict != conformance.VerdictPass || rounds != want || len(reported) != want || reported[1] != fmt.Sprintf("a/b/c 1/%d", want) {
			t.Errorf("Schedules %d: %d schedules, progress %q", asked, rounds, reported)
		}
		opt.Progress = nil
		conformance.Judge(t.Context(), new(fakeLab), c, opt)
	}
}
