package page

import (
	"cmp"
	"slices"
	"time"
)

// MaxSteps is how finely a timeline is drawn at most. More could not be told
// apart on a screen, and every step is bytes of the page.
const MaxSteps = 240

// Track is something that was counted over time, since the start: At rises, and
// so does Count.
type Track struct {
	At    []time.Duration
	Count []uint64
	// Most is how fast it can have risen, a second; 0 if nobody knows. What was
	// counted at once had come before, no faster than that.
	Most float64
}

// curve is a track made fit to be drawn: it begins at 0, never falls, and is
// straight between its points.
type curve struct {
	at    []time.Duration
	count []float64
}

// clean returns the track's curve, whatever it was given: samples come from programs
// that may have gone wrong.
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
	if t.Most > 0 {
		return c.noFaster(t.Most)
	}
	return c
}

// noFaster is the curve that rises to each count by the same time, as late as it can
// without rising faster than most.
func (c curve) noFaster(most float64) (slow curve) {
	add := func(at time.Duration, count float64) {
		slow.at, slow.count = append(slow.at, at), append(slow.count, count)
	}
	last := len(c.at) - 1
	end := c.count[last] // of the part that is looked at, from the last to the first
	add(c.at[last], end)
	for i := last - 1; i >= 0; i-- {
		// Where nothing was counted, it rises at the end of the part.
		if c.count[i] == c.count[i+1] && end > c.count[i] {
			if rises := c.at[i+1] - time.Duration((end-c.count[i])/most*1e9) - 1; rises > c.at[i] {
				end = c.count[i]
				add(rises, end)
			}
		}
		end = max(c.count[i], end-most*(slow.at[len(slow.at)-1]-c.at[i]).Seconds())
		add(c.at[i], end)
	}
	slices.Reverse(slow.at)
	slices.Reverse(slow.count)
	return slow
}

// values are the counts at some times.
func (c curve) values(times []time.Duration) []float64 {
	out := make([]float64, len(times))
	i := 0
	for n, at := range times {
		for i+1 < len(c.at) && c.at[i+1] <= at {
			i++
		}
		out[n] = c.count[i]
		if i+1 < len(c.at) {
			part := float64(at-c.at[i]) / float64(c.at[i+1]-c.at[i])
			out[n] += part * (c.count[i+1] - c.count[i])
		}
	}
	return out
}

// Grid is the steps of a time axis: step i lasts from Edges[i] to Edges[i+1]. The
// axis ends at End, the steps where nothing more is known.
type Grid struct {
	End   time.Duration
	Edges []time.Duration
}

// NewGrid chooses the steps that show some tracks best, up to end or their last
// sample: the samples' own times if those are few, even steps otherwise.
func NewGrid(end time.Duration, tracks []Track) Grid {
	var times []time.Duration
	last := time.Duration(1)
	for _, t := range tracks {
		for _, at := range t.At {
			last = max(last, at)
		}
		if len(times) <= 4*MaxSteps {
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

// Rate is how fast a track rose in each step, a second.
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

// Level is how far a track had come at the end of each step.
func (g Grid) Level(t Track) []float64 { return t.clean().values(g.Edges[1:]) }

// Sum adds values up step by step.
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

// Band is the least, the middle and the greatest value of each step.
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
