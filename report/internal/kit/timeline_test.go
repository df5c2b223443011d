package kit

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
)

const ms = time.Millisecond

func TestGridRateMatchesSamples(t *testing.T) {
	// 10 a ms for 10 ms, nothing for 10 ms, 20 a ms for 5 ms.
	a := Track{At: []time.Duration{10 * ms, 20 * ms, 25 * ms}, Count: []uint64{100, 100, 200}}
	g := NewGrid(30*ms, []Track{a})
	if want := []time.Duration{0, 10 * ms, 20 * ms, 25 * ms}; !reflect.DeepEqual(g.Edges, want) || g.End != 30*ms {
		t.Fatalf("%v up to %v", g.Edges, g.End)
	}
	if got, want := g.Rate(a), []float64{10_000, 0, 20_000}; !near(got, want) {
		t.Errorf("rates %v, want %v", got, want)
	}
	if got, want := g.Level(a), []float64{100, 100, 200}; !near(got, want) {
		t.Errorf("levels %v, want %v", got, want)
	}
	// A rank that was sampled at other times has a constant rate between its samples.
	b := Track{At: []time.Duration{25 * ms}, Count: []uint64{50}}
	if got, want := g.Rate(b), []float64{2000, 2000, 2000}; !near(got, want) {
		t.Errorf("rates %v, want %v", got, want)
	}
}

// A count that jumps after an idle time is spread over the time before it, at MaxRate.
func TestRateDoesNotExceedMaxRate(t *testing.T) {
	// MaxRate is 100 per ms. 1000 are counted at 10 ms, none until 30 ms, 500 at 30 ms, and 400 a
	// microsecond later.
	track := Track{
		At:    []time.Duration{10 * ms, 20 * ms, 30*ms - 1, 30 * ms, 30*ms + time.Microsecond, 40 * ms},
		Count: []uint64{1000, 1000, 1000, 1500, 1900, 1900}, MaxRate: 100e3,
	}
	var g Grid
	for at := range 41 {
		g.Edges = append(g.Edges, time.Duration(at)*ms)
	}
	rates := g.Rate(track)
	sum := 0.0
	for i, r := range rates {
		want := 0.0
		if i < 10 || i >= 21 && i < 30 {
			want = 100e3
		}
		if sum += r / 1000; math.Abs(r-want) > 150 {
			t.Errorf("%.1f a second in millisecond %d, want %.0f", r, i, want)
		}
		if r > 100e3+1 {
			t.Errorf("%.1f a second in millisecond %d exceeds MaxRate", r, i)
		}
	}
	if math.Abs(sum-1900) > 0.01 {
		t.Errorf("%.2f in all, want 1900", sum)
	}
}

func TestManySamplesAreResampledWithoutLoss(t *testing.T) {
	var a Track
	for i := range 5000 {
		a.At = append(a.At, time.Duration(i+1)*ms/7)
		a.Count = append(a.Count, uint64(i*i))
	}
	g := NewGrid(0, []Track{a})
	if len(g.Edges) != MaxSteps+1 || g.Edges[MaxSteps] != a.At[4999] {
		t.Fatalf("%d edges, the last at %v", len(g.Edges), g.Edges[len(g.Edges)-1])
	}
	sum := 0.0
	for i, r := range g.Rate(a) {
		sum += r * (g.Edges[i+1] - g.Edges[i]).Seconds()
	}
	if want := float64(4999 * 4999); math.Abs(sum-want) > 1 {
		t.Errorf("%f in all steps together, want %f", sum, want)
	}
	if path := g.Path(g.Rate(a), Top(g.Rate(a))); strings.Contains(path, ".") {
		t.Errorf("equal steps have fractional coordinates: %.80s", path)
	}
}

func TestCleanSortsAndClampsSamples(t *testing.T) {
	a := Track{At: []time.Duration{20, 10, -5, 20, 30}, Count: []uint64{7, 9, 3, 8, 1, 99}}
	got := a.clean()
	want := curve{at: []time.Duration{0, 10, 20, 30}, count: []float64{3, 9, 9, 9}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestGridDrawsPaths(t *testing.T) {
	g := Grid{End: 4, Edges: []time.Duration{0, 1, 2, 3, 4}}
	v := []float64{10, 10, 5, 0}
	for _, c := range []struct{ got, want string }{
		{g.Path(v, 10), "M0 0H480V500H720V1000H960"},
		{g.Area(v, 10), "M0 1000V0H480V500H720V1000H960V1000"},
		{g.Between([]float64{0, 0, 0, 0}, []float64{10, 10, 10, 10}, 10), "M0 0H960V1000H720V1000H480V1000H240V1000H0Z"},
		{g.Path(v, 0), "M0 1000H960"},
		{g.Path([]float64{math.Inf(1), -5, math.NaN(), 3}, 10)[:4], "M0 0"},
	} {
		if c.got != c.want {
			t.Errorf("%s, want %s", c.got, c.want)
		}
	}
}

func TestTopIsRound(t *testing.T) {
	for most, want := range map[float64]float64{0: 0, 1: 1, 1.2: 1.5, 9.6e9: 1e10, 31: 40, 99: 100, 0.07: 0.08, 5e-9: 5e-9} {
		if got := Top([]float64{most}); math.Abs(got-want) > 1e-9*want {
			t.Errorf("up to %v: %v, want %v", most, got, want)
		}
	}
}

func TestTicksAreTwoToEight(t *testing.T) {
	for _, end := range []time.Duration{1, 7, 999, 74 * time.Microsecond, 3551 * time.Microsecond, 40 * ms, time.Second, 71 * time.Second, 5 * time.Hour, math.MaxInt64} {
		ticks := Grid{End: end}.Ticks()
		if len(ticks) < 2 || len(ticks) > 8 || ticks[0].Text != "0" {
			t.Errorf("%v: %v", end, ticks)
		}
		for _, k := range ticks {
			if k.X < 0 || k.X > Width {
				t.Errorf("%v: a tick at %v", end, k.X)
			}
		}
	}
}

func TestLanesDoNotOverlap(t *testing.T) {
	g := Grid{End: 100}
	spans := []Span{{0, 10, 20}, {5, 8, 4}, {30, 40, 4}, {31, 32, 50}, {50, 60, 1}, {32, 33, 1}}
	rows, room := g.Lanes(spans, 3, 100)
	if want := []int{0, 1, 0, 1, 0, 2}; !reflect.DeepEqual(rows, want) {
		t.Errorf("rows %v, want %v", rows, want)
	}
	if room[0] != g.X(30) || room[2] != g.X(50) || room[5] != Width {
		t.Errorf("room %v", room)
	}
	rows, _ = g.Lanes([]Span{{0, 100, 1}, {0, 100, 1}, {0, 100, 1}}, 2, 100)
	if want := []int{0, 1, -1}; !reflect.DeepEqual(rows, want) {
		t.Errorf("rows %v, want %v", rows, want)
	}
}

func TestBandAndSum(t *testing.T) {
	all := [][]float64{{1, 5}, {3, 3}, {2, 9}}
	low, mid, high := Band(all)
	if !near(low, []float64{1, 3}) || !near(mid, []float64{2, 5}) || !near(high, []float64{3, 9}) || !near(Sum(all), []float64{6, 17}) {
		t.Error(low, mid, high, Sum(all))
	}
	if Sum(nil) != nil {
		t.Error("Sum(nil) is not nil")
	}
}

func near(a, b []float64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if math.Abs(a[i]-b[i]) > 1e-6*math.Max(1, math.Abs(b[i])) {
			return false
		}
	}
	return true
}
