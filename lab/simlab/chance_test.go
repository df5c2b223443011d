package simlab

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/rd"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/mpi/coll"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
	"github.com/fabrictest/fabrictest/scenarios/workload"
)

// maxMissRate is the share of seeds that may miss a bound of a built-in scenario.
const maxMissRate = 1e-9

// With random loss, max_time of a scenario covers the timeouts of all seeds but one in a billion:
// see "Bounds that hold for every seed" in docs/scenarios.md.
func TestTimeBoundsHoldForEverySeed(t *testing.T) {
	found := 0
	for _, s := range shipped(t) {
		most, m := s.ExpectOn(scenarios.Sim).MaxTime, modelOf(s)
		if most == 0 || m.loss == 0 || m.timer == 0 {
			continue
		}
		found++
		missed := m.exceeds(most)
		t.Logf("%-22s %6.2f %% lost, %4d messages, timeouts of %v: %v is exceeded by %.0e of all runs", s.Name, 100*m.loss, m.messages, m.timer, most, missed)
		if missed > maxMissRate {
			t.Errorf("%s: timeouts exceed max_time in simulation, %v, in %.1e of all runs", s.Name, most, missed)
		}
	}
	if found < 10 {
		t.Errorf("only %d scenarios have random loss and max_time", found)
	}
}

func TestTimeoutModelKnownValues(t *testing.T) {
	// One message that needs one packet: n timeouts with probability loss^n.
	m := model{loss: 0.1, packets: 1, messages: 1, timer: time.Millisecond}
	if got := m.exceeds(3 * time.Millisecond); math.Abs(got-1e-4) > 1e-12 {
		t.Errorf("one message: %v, want four timeouts in one of 10000 runs", got)
	}
	// The timer doubles up to 4 ms: 1 + 2 + 4.
	m.longestTimer = 4 * time.Millisecond
	for most, want := range map[time.Duration]float64{6 * time.Millisecond: 1e-3, 7 * time.Millisecond: 1e-4} {
		if got := m.exceeds(most); math.Abs(got-want) > 1e-12 {
			t.Errorf("with a timer that doubles, %v: %v, want %v", most, got, want)
		}
	}
	// Of a hundred messages two are lost, or one is lost twice.
	m = model{loss: 1e-4, packets: 1, messages: 100, timer: time.Millisecond}
	if got, want := m.exceeds(time.Millisecond), 1e-8*(100*99/2+100); math.Abs(got/want-1) > 0.02 {
		t.Errorf("a hundred messages: %v, want %v", got, want)
	}
}

// These seeds exceeded earlier bounds.
func TestSeedsWithManyTimeouts(t *testing.T) {
	for _, s := range shipped(t) {
		for _, seed := range map[string][]uint64{"dgiwarp-rd-damage": {1049, 1057}, "dgiwarp-rd-read": {1052, 1070}}[s.Name] {
			if r := Run(context.Background(), s, lab.Options{Seed: seed}); r.Verdict != report.Passed {
				t.Errorf("%s with seed %d: %s", s.Name, seed, r.Reason)
			}
		}
	}
}

func TestDocumentedBoundRulesAreSafe(t *testing.T) {
	for _, loss := range []float64{0.0001, 0.001, 0.01, 0.02} {
		for _, messages := range []int{1, 10, 100, 1000, 10000} {
			m := model{loss: loss, packets: 3, messages: messages, timer: time.Millisecond}
			q := 1 - (1-loss)*(1-loss)*(1-loss)
			mean := float64(messages) * q / (1 - q)
			bound := time.Duration(mean+6*math.Sqrt(mean)+12) * time.Millisecond
			if missed := m.exceeds(bound); missed > maxMissRate {
				t.Errorf("%d messages at %v: %v is exceeded by %.1e of all runs", messages, loss, bound, missed)
			}
		}
	}
	for _, mean := range []float64{100, 200, 1000} {
		low, high := uint64(mean-7*math.Sqrt(mean)), uint64(mean+7*math.Sqrt(mean))
		if below, above := poisson(mean, scenarios.Range{Min: &low, Max: &high}); below+above > maxMissRate {
			t.Errorf("%v: %d to %d is missed by %.1e of all runs", mean, low, high, below+above)
		}
	}
	for _, mean := range []float64{21, 30, 50, 99} {
		high := uint64(mean + 6*math.Sqrt(mean) + 12)
		if below, above := poisson(mean, scenarios.Range{Min: new(uint64(1)), Max: &high}); below+above > maxMissRate {
			t.Errorf("%v: 1 to %d is missed by %.1e of all runs", mean, high, below+above)
		}
	}
}

// model has the parameters that determine the total time of timeouts. In the worst case every
// message waits for the previous one.
type model struct {
	loss     float64 // the share of packets that the receiver misses
	packets  int     // packets of a message of which a loss causes a timeout
	messages int
	timer    time.Duration // 0 if nothing is retransmitted
	// longestTimer limits the timer, which doubles with each lost retransmission unless this is 0.
	longestTimer time.Duration
}

func modelOf(s *scenarios.Scenario) model {
	m := model{loss: lossOf(s, true), packets: 3, messages: 2 * s.Workload.Messages}
	m.timer, _, _ = s.Workload.RetryBudget()
	reliable := slices.ContainsFunc(s.Workload.WithDefaults(s.RankCount()).Services, func(name string) bool {
		return name != workload.ServiceUC && name != workload.ServiceUD
	})
	switch {
	case !reliable:
		return model{}
	case s.Workload.Kind == workload.Calls: // REQ, REP, RTU, DREQ, DREP
		m.packets, m.messages, m.timer, m.loss = 5, s.Workload.Messages, wire.CMTimeout(20), lossOf(s, false)
	case s.NIC.Provider == "dgiwarp": // acknowledgements name all gaps: there is no NAK
		m.packets, m.loss = 2, lossOf(s, false)
		if t := rd.DefaultTiming(); m.timer == 0 {
			m.timer, m.longestTimer = t.FirstTimeout, t.MaxTimeout
		}
	case s.NIC.Provider == "softiwarp":
		m.packets, m.timer, m.longestTimer = 2, 200*time.Millisecond, 2*time.Minute
	}
	switch s.Workload.Kind {
	case workload.Halo: // a round waits for both neighbours
		m.messages *= s.RankCount()
	case workload.Collective: // in an operation and in a barrier, each rank sends a message to each, or with multicast one up a tree
		m.messages *= s.RankCount()
		if !strings.Contains(s.Workload.Collectives, "multicast") {
			m.messages *= s.RankCount()
		}
		if s.Workload.Operation == "" {
			m.messages *= int(coll.NumOps)
		}
	}
	return m
}

// lossOf returns the share of packets that are lost at random during the scenario.
// Late packets count as lost if the receiver treats every gap as a loss.
func lossOf(s *scenarios.Scenario, late bool) float64 {
	passed := 1.0
	for _, m := range s.Impair {
		if m.Until > 0 {
			continue
		}
		shares := []scenarios.Percent{m.Loss, m.Corrupt, m.Truncate}
		if late {
			shares = append(shares, m.Reorder)
		}
		for _, share := range shares {
			passed *= 1 - float64(share.PPM())/1e6
		}
	}
	return 1 - passed
}

// exceeds returns the share of runs in which the sum of all timeouts exceeds most.
func (m *model) exceeds(most time.Duration) float64 {
	again := 1 - math.Pow(1-m.loss, float64(m.packets))
	one := make([]float64, most/m.timer+1) // probability by the time that a message waits, in timers
	p := 1 - again
	for n, sum := 0, 0; sum < len(one); n, sum = n+1, sum+m.cost(n) {
		one[sum] += p
		p *= again
	}
	all := make([]float64, len(one))
	all[0] = 1
	for k := m.messages; k > 0; k >>= 1 {
		if k&1 == 1 {
			all = convolve(all, one)
		}
		if k > 1 {
			one = convolve(one, one)
		}
	}
	within := 0.0
	for _, p := range all {
		within += p
	}
	return max(0, 1-within)
}

// cost returns the duration of the timeout that follows n timeouts in a row, in timers.
func (m *model) cost(n int) int {
	return max(1, int(min(m.timer<<min(n, 20), m.longestTimer)/m.timer))
}

// convolve returns the distribution of the sum of two random variables. It leaves out values of
// the first with a probability that is negligible beside maxMissRate.
func convolve(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i, p := range a {
		for j := 0; p > 1e-20 && i+j < len(out); j++ {
			out[i+j] += p * b[j]
		}
	}
	return out
}

// The bounds of lost packets hold for all seeds but one in a billion. The number is binomial; the
// Poisson distribution is a little wider and needs only the mean.
func TestLossBoundsHoldForEverySeed(t *testing.T) {
	for _, s := range shipped(t) {
		want, loss := s.ExpectOn(scenarios.Sim).Lost, lossOf(s, false)
		if loss == 0 || want.IsZero() {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			r := resultOf(s)
			mean := 0.0
			for _, l := range r.Links {
				if l.Impaired && strings.HasPrefix(l.From, "host") {
					mean += float64(l.Packets) * loss
				}
			}
			low, high := poisson(mean, want)
			t.Logf("%.1f on average, %s: missed by %.1e of all runs", mean, check(r, "lost").Want, low+high)
			if low > maxMissRate || high > maxMissRate {
				t.Errorf("%.1f packets are lost on average: %s is missed by %.1e of all runs", mean, check(r, "lost").Want, low+high)
			}
		})
	}
}

// poisson returns the probabilities of a count below and above a range.
func poisson(mean float64, r scenarios.Range) (below, above float64) {
	for n := uint64(0); n < 10_000; n++ {
		gamma, _ := math.Lgamma(float64(n) + 1)
		p := math.Exp(float64(n)*math.Log(mean) - mean - gamma)
		switch {
		case r.Min != nil && n < *r.Min:
			below += p
		case r.Max != nil && n > *r.Max:
			above += p
		}
	}
	return below, above
}
