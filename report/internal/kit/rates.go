package kit

import (
	"cmp"
	"slices"
	"time"
)

// MaxSteps is the maximum resolution of a timeline. It limits the size of the page.
const MaxSteps = 240

// Track is a cumulative counter over time: At and Count do not decrease.
type Track struct {
	At    []time.Duration
	Count []uint64
	// MaxRate is the maximum rate per second; 0 if unknown. A jump of Count is spread over the
	// time before the jump, at no more than this rate.
	MaxRate float64
}

// curve is a cleaned track: it starts at 0, never decreases, and is linear between points.
type curve struct {
	at    []time.Duration
	count []float64
}

// clean returns the track's count over time as a curve, from 0 at time 0. Samples may be invalid,
// since programs with defects produce them: clean sorts them by time and corrects counts that
// decrease. With MaxRate, the curve rises no faster than that.
func (t Track) clean() curve {
	n := min(len(t.At), len(t.Count))
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(t.At[a], t.At[b]) })
	c := curve{at: make([]time.Duration, 1, n+1), count: make([]float64, 1, n+1)}
	for _, i := range order {
		last := len(c.at) - 1
		at, count := max(0, t.At[i]), max(float64(t.Count[i]), c.count[last])
		if at == c.at[last] {
			c.count[last] = count
			continue
		}
		c.at, c.count = append(c.at, at), append(c.count, count)
	}
	if t.MaxRate > 0 {
		return c.limitRate(t.MaxRate)
	}
	return c
}

// limitRate returns a curve that reaches the counts of c no later than c, but rises no faster than
// maxRate: before a jump of c it rises at maxRate, from the latest possible time on.
func (c curve) limitRate(maxRate float64) (slow curve) {
	add := func(at time.Duration, count float64) {
		slow.at, slow.count = append(slow.at, at), append(slow.count, count)
	}
	last := len(c.at) - 1
	end := c.count[last] // count at the end of the current segment; the loop goes backwards
	add(c.at[last], end)
	for i := last - 1; i >= 0; i-- {
		// If c is level from i to i+1, slow stays level too, and rises to end just before i+1. It
		// starts 1 ns early, since the conversion to a Duration rounds down.
		if c.count[i] == c.count[i+1] && end > c.count[i] {
			if riseStart := c.at[i+1] - time.Duration((end-c.count[i])/maxRate*1e9) - 1; riseStart > c.at[i] {
				end = c.count[i]
				add(riseStart, end)
			}
		}
		end = max(c.count[i], end-maxRate*(slow.at[len(slow.at)-1]-c.at[i]).Seconds())
		add(c.at[i], end)
	}
	slices.Reverse(slow.at)
	slices.Reverse(slow.count)
	return slow
}

// values returns the counts at the given times, which increase, by linear interpolation.
func (c curve) values(times []time.Duration) []float64 {
	out := make([]float64, len(times))
	i := 0
	for n, at := range times {
		for i+1 < len(c.at) && c.at[i+1] <= at {
			i++
		}
		out[n] = c.count[i]
		if i+1 < len(c.at) {
			fraction := float64(at-c.at[i]) / float64(c.at[i+1]-c.at[i])
			out[n] += fraction * (c.count[i+1] - c.count[i])
		}
	}
	return out
}

// Grid is a time axis with steps: step i lasts from Edges[i] to Edges[i+1]. The axis ends at
// End; the steps end with the last sample.
type Grid struct {
	End   time.Duration
	Edges []time.Duration
}

// NewGrid returns a time axis for tracks. Its steps lie between edges: the times of samples, or
// equally spaced times if there are MaxSteps samples or more. The last edge is that of the last
// sample; the axis itself goes on until end if that is later.
func NewGrid(end time.Duration, tracks []Track) Grid {
	var times []time.Duration
	last := time.Duration(1) // an axis cannot have length 0
	for _, t := range tracks {
		for _, at := range t.At {
			last = max(last, at)
		}
		if len(times) <= 4*MaxSteps { // bounds the sorting; with so many, the edges are equally spaced
			times = append(times, t.At...)
			slices.Sort(times)
			times = slices.Compact(times)
		}
	}
	g := Grid{End: max(end, last)}
	times = slices.DeleteFunc(times, func(d time.Duration) bool { return d <= 0 || d >= last })
	if len(times) < MaxSteps {
		g.Edges = append(append([]time.Duration{0}, times...), last)
		return g
	}
	for i := range MaxSteps + 1 {
		edge := time.Duration(float64(g.End) * float64(i) / MaxSteps)
		g.Edges = append(g.Edges, min(edge, last))
		if edge >= last {
			break
		}
	}
	return g
}

// Rate returns the rate of a track per second in each step of the grid, the time from one edge to
// the next.
func (g Grid) Rate(t Track) []float64 {
	counts := t.clean().values(g.Edges)
	rates := make([]float64, len(g.Edges)-1)
	for i := range rates {
		if d := g.Edges[i+1] - g.Edges[i]; d > 0 {
			rates[i] = (counts[i+1] - counts[i]) / d.Seconds()
		}
	}
	return rates
}

// Level returns the count of a track at the end of each step.
func (g Grid) Level(t Track) []float64 { return t.clean().values(g.Edges[1:]) }

// Sum returns for each step of a grid the sum of the values of all tracks; nil without tracks.
func Sum(all [][]float64) []float64 {
	if len(all) == 0 {
		return nil
	}
	sum := make([]float64, len(all[0]))
	for _, v := range all {
		for i := range v {
			sum[i] += v[i]
		}
	}
	return sum
}

// Band returns the minimum, median and maximum of all tracks in each step of a grid.
func Band(all [][]float64) (low, mid, high []float64) {
	if len(all) == 0 {
		return nil, nil, nil
	}
	column := make([]float64, len(all))
	for i := range all[0] {
		for k := range all {
			column[k] = all[k][i]
		}
		slices.Sort(column)
		low = append(low, column[0])
		mid = append(mid, column[len(column)/2])
		high = append(high, column[len(column)-1])
	}
	return low, mid, high
}
