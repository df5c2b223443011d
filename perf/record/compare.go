package record

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/perf/benchmath"
)

// Verdict is the result of the comparison of a series.
type Verdict string

// The verdicts.
const (
	Better       Verdict = "better"
	Worse        Verdict = "worse"
	Same         Verdict = "same"         // any difference is within the floor
	Inconclusive Verdict = "inconclusive" // too few or too scattered samples
	Missing      Verdict = "missing"      // only one of the runs has the series
)

// Options of a comparison.
type Options struct {
	// Alpha is the share of comparisons without any difference in which some series is called
	// better or worse; 0 means 0.01. It holds for all series together.
	Alpha float64
	// Floor is the relative difference that does not matter; 0 means 2 %. The floor of a series is
	// at least its A/A noise.
	Floor float64
}

// Comparison compares two runs.
type Comparison struct {
	Rows []Row `json:"rows"`
}

// Row compares a series of two runs, A before and B after.
type Row struct {
	Name string  `json:"name"`
	Unit Unit    `json:"unit"`
	A    Summary `json:"a"`
	B    Summary `json:"b"`
	// Change is the relative difference of the medians, and Low and High are its 95 % confidence
	// interval. All are 0 if a series is missing.
	Change float64 `json:"change"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	// Effect is the probability that a sample of B is larger than one of A, half of it if equal:
	// 0.5 means no difference.
	Effect float64 `json:"effect"`
	// P is the probability of such a difference by chance (Mann-Whitney), adjusted for the number
	// of series (Holm).
	P       float64 `json:"p"`
	Floor   float64 `json:"floor"`
	Verdict Verdict `json:"verdict"`
}

// Summary is the number and the median of samples.
type Summary struct {
	N      int     `json:"n"`
	Median float64 `json:"median"`
	// Noise is the A/A difference: between the medians of every other sample and the rest.
	Noise float64 `json:"noise"`
}

// minSamples is the number of samples from which a series can be judged. Fewer cannot differ by
// less chance than 3 %.
const minSamples = 5

// Compare compares run b with run a. It returns an error if they have no series in common.
func Compare(a, b *Run, o Options) (*Comparison, error) {
	const defaultAlpha, defaultFloor = 0.01, 0.02 // significance level; relative difference that does not matter
	o.Alpha, o.Floor = cmp.Or(o.Alpha, defaultAlpha), cmp.Or(o.Floor, defaultFloor)
	c := &Comparison{}
	common := 0
	for i := range a.Series {
		s := &a.Series[i]
		other := b.find(s.Name, s.Unit)
		if other == nil {
			c.Rows = append(c.Rows, Row{Name: s.Name, Unit: s.Unit, A: summarise(s), Verdict: Missing})
			continue
		}
		common++
		c.Rows = append(c.Rows, compareSeries(s, other, o))
	}
	for i := range b.Series {
		if s := &b.Series[i]; a.find(s.Name, s.Unit) == nil {
			c.Rows = append(c.Rows, Row{Name: s.Name, Unit: s.Unit, B: summarise(s), Verdict: Missing})
		}
	}
	if common == 0 {
		return nil, errors.New("the runs have no series in common")
	}
	adjustPValues(c.Rows)
	for i := range c.Rows {
		c.Rows[i].judge(o)
	}
	slices.SortFunc(c.Rows, func(x, y Row) int {
		return cmp.Or(compareNames(x.Name, y.Name), cmp.Compare(x.Unit, y.Unit))
	})
	return c, nil
}

// compareSeries returns the row of two series, with the P of this comparison alone, and without a
// verdict. P stays 1 if a series has too few samples to be judged.
func compareSeries(a, b *Series, o Options) Row {
	r := Row{Name: a.Name, Unit: a.Unit, A: summarise(a), B: summarise(b), P: 1}
	r.Floor = max(o.Floor, r.A.Noise, r.B.Noise)
	r.Change = relative(r.A.Median, r.B.Median)
	r.Low, r.High = shiftInterval(a.Samples, b.Samples)
	r.Effect = superiority(a.Samples, b.Samples)
	if min(r.A.N, r.B.N) >= minSamples {
		// NewSample sorts the samples, whose order noise needs: clone them.
		x := benchmath.NewSample(slices.Clone(a.Samples), &benchmath.DefaultThresholds)
		y := benchmath.NewSample(slices.Clone(b.Samples), &benchmath.DefaultThresholds)
		r.P = benchmath.AssumeNothing.Compare(x, y).P
	}
	return r
}

// judge sets the verdict of a row. The series differ if the difference is significant and larger
// than the row's floor: o.Floor (the difference that does not matter), or the noise of a series if
// that is larger. Else they are the same if the confidence interval of the difference is within
// o.Floor. All other rows, and those with too few samples, are inconclusive.
func (r *Row) judge(o Options) {
	few := min(r.A.N, r.B.N) < minSamples
	differs := r.P < o.Alpha && math.Abs(r.Change) > r.Floor
	switch {
	case r.Verdict == Missing:
	case few:
		r.Verdict = Inconclusive
	case differs && (r.Change > 0) == r.Unit.MoreIsBetter():
		r.Verdict = Better
	case differs:
		r.Verdict = Worse
	case r.Low >= -o.Floor && r.High <= o.Floor:
		r.Verdict = Same
	default:
		r.Verdict = Inconclusive
	}
}

// adjustPValues corrects the P of each row for the number of comparisons, by the method of Holm: it
// multiplies the smallest of n by n, the next by n-1 and so on, and lets none fall below the one
// before.
func adjustPValues(rows []Row) {
	var order []*Row
	for i := range rows {
		if r := &rows[i]; r.Verdict != Missing && min(r.A.N, r.B.N) >= minSamples {
			order = append(order, r)
		}
	}
	slices.SortStableFunc(order, func(a, b *Row) int { return cmp.Compare(a.P, b.P) })
	before := 0.0
	for i, r := range order {
		r.P = max(before, min(1, r.P*float64(len(order)-i)))
		before = r.P
	}
}

// summarise returns the summary of a series.
func summarise(s *Series) Summary {
	return Summary{N: len(s.Samples), Median: median(s.Samples), Noise: noise(s.Samples)}
}

// noise is the relative difference between the medians of the samples with even and with odd
// indices, which only chance can cause. It returns 0 if a half would have less than minSamples.
func noise(samples []float64) float64 {
	if len(samples) < 2*minSamples {
		return 0
	}
	var halves [2][]float64
	for i, v := range samples {
		halves[i%2] = append(halves[i%2], v)
	}
	return math.Abs(relative(median(halves[0]), median(halves[1])))
}

// median returns the median; 0 without values.
func median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// relative returns b/a - 1, and 0 if a is 0.
func relative(a, b float64) float64 {
	if a == 0 {
		return 0
	}
	return b/a - 1
}

// shiftInterval returns the 95 % confidence interval of the relative difference between two
// series, by the method of Moses: of all ratios of a sample of b to one of a, it leaves out as many
// at each end as the Mann-Whitney test with 2.5 % would.
func shiftInterval(a, b []float64) (low, high float64) {
	var ratios []float64
	for _, x := range a {
		for _, y := range b {
			if x > 0 {
				ratios = append(ratios, y/x-1)
			}
		}
	}
	if len(ratios) == 0 {
		return 0, 0
	}
	slices.Sort(ratios)
	const z = 1.96 // the quantile of the normal distribution for 97.5 %
	m, n := float64(len(a)), float64(len(b))
	k := int(m*n/2 - z*math.Sqrt(m*n*(m+n+1)/12))
	k = min(max(k, 0), (len(ratios)-1)/2)
	return ratios[k], ratios[len(ratios)-1-k]
}

// superiority returns the share of pairs in which the sample of b is larger; equal ones count half.
func superiority(a, b []float64) float64 {
	sum := 0.0
	for _, x := range a {
		for _, y := range b {
			switch {
			case y > x:
				sum++
			case y == x:
				sum += 0.5
			}
		}
	}
	return sum / float64(len(a)*len(b))
}

// compareNames orders the names of series, and numbers in them by value: bytes=8 before bytes=64.
func compareNames(a, b string) int {
	as, bs := strings.FieldsFunc(a, isSeparator), strings.FieldsFunc(b, isSeparator)
	for i := range min(len(as), len(bs)) {
		x, errX := strconv.ParseFloat(as[i], 64)
		y, errY := strconv.ParseFloat(bs[i], 64)
		c := cmp.Compare(as[i], bs[i])
		if errX == nil && errY == nil {
			c = cmp.Compare(x, y)
		}
		if c != 0 {
			return c
		}
	}
	return cmp.Compare(len(as), len(bs))
}

func isSeparator(c rune) bool { return c == '/' || c == '=' }
