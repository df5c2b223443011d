package record

import (
	"cmp"
	"math"
	"slices"
)

// Change is a lasting change of a series in a history.
type Change struct {
	Name string `json:"name"`
	Unit Unit   `json:"unit"`
	// Run is the index of the first run after the change, in the order of time.
	Run    int     `json:"run"`
	Before float64 `json:"before"` // median of the runs since the previous change
	After  float64 `json:"after"`  // median of the runs until the next one
	Better bool    `json:"better"`
}

// minSegment is how many runs a level must last: an outlier is no change.
const minSegment = 3

// History orders runs by time, and finds where the level of each series, its median over
// consecutive runs, changes by more than floor, a fraction of the level before. The value of a series
// in a run is the median of its samples.
func History(runs []*Run, floor float64) (ordered []*Run, changes []Change) {
	ordered = slices.Clone(runs)
	slices.SortStableFunc(ordered, func(a, b *Run) int { return a.Started.Compare(b.Started) })
	type key struct {
		name string
		unit Unit
	}
	seen := map[key]bool{}
	for _, r := range ordered {
		for i := range r.Series {
			k := key{r.Series[i].Name, r.Series[i].Unit}
			if !seen[k] {
				seen[k] = true
				changes = append(changes, seriesChanges(ordered, k.name, k.unit, floor)...)
			}
		}
	}
	slices.SortStableFunc(changes, func(a, b Change) int {
		return cmp.Or(compareNames(a.Name, b.Name), cmp.Compare(a.Unit, b.Unit), cmp.Compare(a.Run, b.Run))
	})
	return ordered, changes
}

// SeriesHistory is a series over the runs of a history.
type SeriesHistory struct {
	Name    string
	Unit    Unit
	Medians []float64 // by run; NaN for a run without the series
	Changes []Change
}

// Histories returns the history of each series of the runs, which are in the order of time. It
// selects the changes of each series from changes. Series that changed come first.
func Histories(runs []*Run, changes []Change) (all []SeriesHistory) {
	for _, r := range runs {
		for i := range r.Series {
			s := &r.Series[i]
			if slices.ContainsFunc(all, func(h SeriesHistory) bool { return h.Name == s.Name && h.Unit == s.Unit }) {
				continue
			}
			h := SeriesHistory{Name: s.Name, Unit: s.Unit}
			for _, other := range runs {
				v := math.NaN()
				if found := other.find(s.Name, s.Unit); found != nil {
					v = found.Median()
				}
				h.Medians = append(h.Medians, v)
			}
			for _, c := range changes {
				if c.Name == s.Name && c.Unit == s.Unit {
					h.Changes = append(h.Changes, c)
				}
			}
			all = append(all, h)
		}
	}
	slices.SortStableFunc(all, func(a, b SeriesHistory) int {
		changed := func(h *SeriesHistory) int { return min(len(h.Changes), 1) }
		return cmp.Or(cmp.Compare(changed(&b), changed(&a)), compareNames(a.Name, b.Name))
	})
	return all
}

// seriesChanges returns the changes of one series between successive levels: a level is a sequence
// of runs with about the same median. It skips runs without the series, and changes of at most
// floor, relative to the level before.
func seriesChanges(runs []*Run, name string, unit Unit, floor float64) (changes []Change) {
	var values []float64
	var at []int // index of the run of each value
	for i, r := range runs {
		if s := r.find(name, unit); s != nil {
			values, at = append(values, median(s.Samples)), append(at, i)
		}
	}
	bounds := levels(values)
	for i := 1; i+1 < len(bounds); i++ {
		before, after := median(values[bounds[i-1]:bounds[i]]), median(values[bounds[i]:bounds[i+1]])
		if d := relative(before, after); math.Abs(d) > floor {
			changes = append(changes, Change{
				Name: name, Unit: unit, Run: at[bounds[i]], Before: before, After: after, Better: (d > 0) == unit.MoreIsBetter(),
			})
		}
	}
	return changes
}

// levels divides values into segments of a constant level, of at least minSegment values each. It
// returns the index of the first value of each segment, and then the number of values. Of all
// divisions it takes the one with the least sum of squared deviations and penalties per segment.
func levels(values []float64) []int {
	n := len(values)
	if n < 2*minSegment {
		return []int{0, n}
	}
	scaled := scaleByNoise(values)
	// The penalty of a level: of 200 histories with noise alone, no more than 2 % gain as much by a
	// division (see the test).
	penalty := 7 * math.Log(float64(n))
	sums, squares := make([]float64, n+1), make([]float64, n+1) // of the first i values
	for i, v := range scaled {
		sums[i+1], squares[i+1] = sums[i]+v, squares[i]+v*v
	}
	deviation := func(from, to int) float64 {
		s := sums[to] - sums[from]
		return squares[to] - squares[from] - s*s/float64(to-from)
	}
	// Dynamic programming: best[to] is the least cost of values[:to], from[to] the start of its
	// last segment. The cost of 1 to minSegment-1 values is infinite.
	best, from := make([]float64, n+1), make([]int, n+1)
	for to := 1; to <= n; to++ {
		best[to] = math.Inf(1)
		for start := 0; start+minSegment <= to; start++ {
			if c := best[start] + deviation(start, to) + penalty; c < best[to] {
				best[to], from[to] = c, start
			}
		}
	}
	bounds := []int{n}
	for to := n; to > 0; to = from[to] {
		bounds = append(bounds, from[to])
	}
	slices.Reverse(bounds)
	return bounds
}

// scaleByNoise returns the logarithms of values in units of their noise. The noise is estimated
// from the median difference of successive values, which a change of the level hardly affects.
// Outliers are moved to four times the noise from the median of their neighbours.
func scaleByNoise(values []float64) []float64 {
	logs := make([]float64, len(values))
	for i, v := range values {
		logs[i] = math.Log(max(v, math.SmallestNonzeroFloat64))
	}
	var steps []float64
	for i := 1; i < len(logs); i++ {
		steps = append(steps, math.Abs(logs[i]-logs[i-1]))
	}
	// Of normal values, the median of such steps is 0.954 standard deviations.
	const leastNoise = 1e-4
	sigma := max(median(steps)/0.954, leastNoise)
	scaled := make([]float64, len(logs))
	for i, v := range logs {
		const reach, limit = 2, 4
		near := median(logs[max(i-reach, 0):min(i+reach+1, len(logs))])
		scaled[i] = (near + min(max(v-near, -limit*sigma), limit*sigma)) / sigma
	}
	return scaled
}
