package workload

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

func TestValidateNamesTheKey(t *testing.T) {
	n := func(i int) *int { return &i }
	for _, tc := range []struct {
		name string
		cfg  Config
		keys []string
	}{
		{"nothing but a kind", Config{Kind: Stream}, nil},
		{"no kind", Config{}, []string{"kind"}},
		{"unknown kind", Config{Kind: "flood"}, []string{"kind"}},
		{"one rank", Config{Kind: Halo, Ranks: 1}, []string{"ranks"}},
		{"more ranks than hosts", Config{Kind: Halo, Ranks: 9}, []string{"ranks"}},
		{"negative numbers", Config{Kind: Stream, Messages: -1, Bytes: -1, Depth: -1, Think: -1}, []string{"messages", "bytes", "depth", "think"}},
		{"too much", Config{Kind: Stream, Messages: 1 << 30, Bytes: 1 << 30, Depth: 1 << 20}, []string{"messages", "bytes", "depth"}},
		{"unknown service", Config{Kind: Random, Services: []string{"rc", "dc"}}, []string{"services[1]"}},
		{"two kinds of datagrams", Config{Kind: Random, Services: []string{"rd", "ud"}}, []string{"services"}},
		{"rd has no connections", Config{Kind: Stream, Services: []string{"rd"}, Reconnect: true, CM: true, MTU: []int{1024}}, []string{"services[0]", "mtu", "mtu", "cm"}},
		{"rd does not give up", Config{Kind: Random, Services: []string{"rd"}, Excuses: []string{"gives_up"}}, []string{"excuses"}},
		{"two services", Config{Kind: Stream, Services: []string{"rc", "srq"}}, []string{"services"}},
		{"op of a kind without", Config{Kind: Random, Op: "send"}, []string{"op"}},
		{"op of another kind", Config{Kind: PingPong, Op: "read"}, []string{"op"}},
		{"datagrams are sent", Config{Kind: Stream, Services: []string{"ud"}, Op: "write"}, []string{"op"}},
		{"datagrams are small", Config{Kind: Stream, Services: []string{"ud"}, Bytes: 5000}, []string{"bytes"}},
		{"datagrams fit the MTU", Config{Kind: Stream, Services: []string{"ud"}, Bytes: 2000, MTU: []int{1024}}, []string{"bytes"}},
		{"MTU", Config{Kind: Stream, MTU: []int{1024, 1500, 0}}, []string{"mtu[1]", "mtu[2]"}},
		{"MTUs of random", Config{Kind: Random, MTU: []int{1024, 2048}}, []string{"mtu"}},
		{"counts", Config{Kind: Stream, Retries: n(8), RNRRetries: n(-1)}, []string{"retries", "rnr_retries"}},
		{"counts that fit", Config{Kind: Stream, Retries: n(0), RNRRetries: n(7)}, nil},
		{"times", Config{Kind: Stream, Timeout: 3 * time.Hour, RNRTimer: time.Second}, []string{"timeout", "rnr_timer"}},
		{"random does not reconnect", Config{Kind: Random, Reconnect: true, Failover: true}, []string{"reconnect", "failover"}},
		{"unreliable ones cannot", Config{Kind: Stream, Services: []string{"uc"}, Reconnect: true}, []string{"services[0]"}},
		{"pause without receives", Config{Kind: Stream, Op: "write", Pause: time.Millisecond}, []string{"pause"}},
		{"pause in turns", Config{Kind: PingPong, Pause: time.Millisecond}, []string{"pause"}},
		{"cm", Config{Kind: Incast, CM: true}, []string{"cm"}},
		{"cm decides", Config{Kind: Stream, CM: true, Timeout: time.Millisecond}, []string{"timeout"}},
		{"so it does for calls", Config{Kind: Calls, MTU: []int{1024}, RNRTimer: time.Millisecond}, []string{"mtu", "rnr_timer"}},
		{"excuses", Config{Kind: Stream, Excuses: []string{"loses", "late"}}, []string{"excuses[1]"}},
		{"failover with xrc", Config{Kind: Stream, Services: []string{"xrc"}, Failover: true}, []string{"failover"}},
	} {
		err := tc.cfg.Validate(8, 2)
		var found ConfigError
		errors.As(err, &found)
		var keys []string
		for _, e := range found {
			keys = append(keys, e.Key)
		}
		if fmt.Sprint(keys) != fmt.Sprint(tc.keys) || (err == nil) != (tc.keys == nil) {
			t.Errorf("%s: %v, want complaints about %v", tc.name, err, tc.keys)
		}
	}
	if err := (&Config{Kind: Stream, Failover: true}).Validate(2, 1); err == nil {
		t.Error("failover on one rail is accepted")
	}
}

// Defaults are valid for every kind and service.
func TestDefaultsAreValid(t *testing.T) {
	for _, k := range Kinds() {
		for _, s := range kinds[k].services {
			c := Config{Kind: k, Services: []string{s}}.WithDefaults(4)
			if err := c.Validate(4, 1); err != nil {
				t.Errorf("%s over %s: %v", k, s, err)
			}
			if c.Ranks != 4 || c.Messages == 0 || c.Bytes == 0 || c.Depth == 0 || *c.Retries != 7 || *c.RNRRetries != 7 {
				t.Errorf("%s: %+v", k, c)
			}
		}
	}
}

func TestRNRTimerCodesRoundUp(t *testing.T) {
	for code := range uint8(32) {
		if got := rnrCode(rnrTimeOf(code)); got != code {
			t.Errorf("rnrCode(%v) = %d, want %d", rnrTimeOf(code), got, code)
		}
	}
	if rnrTimeOf(0) != 655360*time.Microsecond {
		t.Errorf("the longest RNR timer is %v", rnrTimeOf(0))
	}
	if got := rnrCode(500 * time.Microsecond); got != 12 {
		t.Errorf("rnrCode(500 µs) = %d, want 12, which is 640 µs", got)
	}
}

func TestImmediateCountsWrap(t *testing.T) {
	for _, near := range []int{0, 5, 1<<immBits - 3, 1 << immBits, 3<<immBits + 7} {
		for _, delta := range []int{-5, 0, 1, 64, 4096} {
			want := near + delta
			if got := countOf(immediate(immCredit, want), near); got != want {
				t.Errorf("countOf(%d) near %d = %d", want, near, got)
			}
		}
	}
}

// A run is sampled 50 to 200 times, however long it takes.
func TestSamplerLimitsSamples(t *testing.T) {
	for _, tc := range []struct {
		step       time.Duration
		messages   int
		expected   int
		concurrent bool
		low, high  int
	}{
		{time.Microsecond, 1000, 1000, false, 50, 200},
		{time.Microsecond, 1_000_000, 1_000_000, false, 50, 400},
		{time.Millisecond, 1000, 1000, false, 50, 300},
		{10 * time.Millisecond, 1000, 1000, true, 50, 300},
		{time.Microsecond, 100_000, 100_000, true, 3, 6}, // 20 ms apart
		{time.Microsecond, 100_000, 100, false, 50, 400}, // more than expected
	} {
		var s sampler
		s.expect(tc.expected)
		taken, last := 0, time.Duration(0)
		for i := range tc.messages {
			now := time.Duration(i+1) * tc.step
			if s.due(now, uint64(i), 0, tc.concurrent) {
				if tc.concurrent && taken > 0 && now-last < realGap {
					t.Errorf("%+v: samples %v apart", tc, now-last)
				}
				last = now
				taken++
			}
		}
		if taken < tc.low || taken > tc.high {
			t.Errorf("%+v: %d samples", tc, taken)
		}
	}
	// The first message after a stall is sampled at once.
	var s sampler
	s.expect(1000)
	for now := time.Duration(0); now < time.Second; now += time.Millisecond {
		s.due(now, 10, 0, false)
	}
	if !s.due(time.Second+1, 11, 0, false) {
		t.Error("the first message after a stall is not sampled")
	}
}

func TestEventLogIsBounded(t *testing.T) {
	j := &eventLog{rank: &Rank{Control: discardControl{}}}
	for range 1000 {
		j.violation(traffic.Delivery, "something")
		j.recordFailure(0, 1, 0, verbs.WCRetryExcErr)
	}
	r := j.report()
	if len(r.Violations) != MaxViolations+1 || r.Violations[MaxViolations] != (Violation{traffic.Omitted, "and 968 more like these"}) {
		t.Errorf("%d violations, the last %q", len(r.Violations), r.Violations[len(r.Violations)-1])
	}
	if len(r.Failures) != MaxFailures || r.FailureCount != 1000 {
		t.Errorf("%d failures of %d", len(r.Failures), r.FailureCount)
	}
}

// discardControl is a Control that ignores marks.
type discardControl struct{ Control }

func (discardControl) Mark(string) {}
