package experiment

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/perf/record"
)

// Fit is a platform whose parameters were fitted to measured series.
type Fit struct {
	Platform   *nics.Platform `json:"-"`
	Parameters []FitParameter `json:"parameters"`
	Points     []FitPoint     `json:"points"`
	// NotPredicted are the series that the simulation does not have.
	NotPredicted []string `json:"not_predicted,omitempty"`
	// RMS is the root of the mean of the squared relative residuals.
	RMS float64 `json:"rms"`
	// Singular are the singular values of the relative sensitivities: the largest first.
	Singular []float64 `json:"singular_values"`
	// Free are combinations of parameters that the data do not determine.
	Free []string `json:"undetermined_combinations,omitempty"`
}

// FitParameter is a fitted parameter.
type FitParameter struct {
	Name   string  `json:"name"`
	Before float64 `json:"before"`
	After  float64 `json:"after"`
	// Error is the relative standard error, with data that have an error of 1 % or the RMS of the
	// fit, whichever is larger.
	Error      float64 `json:"error"`
	Determined bool    `json:"determined"` // the error is at most maxError
}

// FitPoint is a measured series and its value on the fitted platform.
type FitPoint struct {
	Name     string      `json:"name"`
	Unit     record.Unit `json:"unit"`
	Measured float64     `json:"measured"`
	Fitted   float64     `json:"fitted"`
	Residual float64     `json:"residual"` // relative
}

const (
	// leastNoise is the relative error of data that fit better than that.
	leastNoise = 0.01
	// maxError is the relative standard error above which a parameter is not determined.
	maxError = 0.5
	// fitStep is the relative change of a parameter for a derivative. It is larger than the steps
	// of the simulation, such as the time of a poll.
	fitStep = 0.1
	// goodRMS is that of a fit that needs no more steps.
	goodRMS = 0.001
	// maxFitSteps is the number of Gauss-Newton steps.
	maxFitSteps = 12
)

// FitOptions are those of a fit.
type FitOptions struct {
	Platform   string   // to begin with
	Parameters []string // none for those that were fitted before
	Out        string   // the file of the fitted platform; "" for none
}

// Run fits the platform to the recorded runs in the named files, merged into one, and writes the
// fitted platform to o.Out.
func (o *FitOptions) Run(names []string) (*Fit, error) {
	base, err := nics.LoadPlatform(o.Platform)
	if err != nil {
		return nil, err
	}
	runs, err := record.LoadAll(names)
	if err != nil {
		return nil, err
	}
	runs[0].Merge(runs[1:]...)
	f, err := FitPlatform(base, o.Parameters, runs[0])
	if err != nil {
		return nil, err
	}
	return f, cli.WriteFile(o.Out, f.Platform.Write)
}

// fitter is the state of a fit. Parameters are the logarithms of their ratio to those of base, and
// residuals those of prediction to measurement.
type fitter struct {
	base   *nics.Platform
	names  []string
	series []record.Series
	goal   []float64 // medians of series
}

// FitPlatform fits the named parameters of a platform to the series of a run, by least squares of
// relative residuals. Without names it fits the parameters whose source in the file begins with
// "fitted". It leaves out series that the simulation cannot predict.
func FitPlatform(base *nics.Platform, names []string, run *record.Run) (*Fit, error) {
	f := &fitter{base: base, names: names}
	if len(names) == 0 {
		for i := range base.Parameters {
			if p := &base.Parameters[i]; p.Kind() == "fitted" {
				f.names = append(f.names, p.Name)
			}
		}
	}
	for _, name := range f.names {
		if v, ok := base.Value(name); !ok || v == 0 {
			return nil, cli.Errorf("%s: the platform %s does not have it, or it is 0: give it a first value in a file", name, base.Name)
		}
	}
	fit := &Fit{}
	for i := range run.Series {
		s := run.Series[i]
		if m := s.Median(); m > 0 && Predicts(&s) {
			f.series, f.goal = append(f.series, s), append(f.goal, m)
		} else {
			fit.NotPredicted = append(fit.NotPredicted, s.Name)
		}
	}
	if len(f.names) == 0 || len(f.series) == 0 {
		return nil, cli.Errorf("%d parameters and %d series of benchmarks that the simulation has: both are needed", len(f.names), len(f.series))
	}
	return fit, f.solve(fit)
}

// solve finds the parameters by Gauss-Newton steps, from x = 0 (the base platform), until the
// residuals are small or no step reduces them, and fills in fit.
func (f *fitter) solve(fit *Fit) error {
	x := make([]float64, len(f.names))
	r, err := f.residuals(x)
	if err != nil {
		return err
	}
	var v [][]float64
	var singular []float64
	for range maxFitSteps {
		j, err := f.sensitivities(x, r)
		if err != nil {
			return err
		}
		singular, v = decompose(j)
		if rms(r) < goodRMS {
			break
		}
		next, rNext, err := f.step(x, r, j, singular, v)
		if err != nil {
			return err
		}
		if next == nil {
			break
		}
		x, r = next, rNext
	}
	fit.RMS, fit.Singular = rms(r), singular
	noise := max(leastNoise, fit.RMS)
	for k, s := range singular {
		if s*maxError < noise {
			fit.Free = append(fit.Free, f.combination(v, k))
		}
	}
	if fit.Platform, err = f.platform(x); err != nil {
		return err
	}
	for i, name := range f.names {
		before, _ := f.base.Value(name)
		after, _ := fit.Platform.Value(name)
		p := FitParameter{Name: name, Before: before, After: after, Error: standardError(singular, v, i, noise)}
		p.Determined = p.Error <= maxError
		fit.Parameters = append(fit.Parameters, p)
	}
	for i, s := range f.series {
		fit.Points = append(fit.Points, FitPoint{s.Name, s.Unit, f.goal[i], f.goal[i] * math.Exp(r[i]), math.Exp(r[i]) - 1})
	}
	return nil
}

// platform returns the platform base with each fitted parameter multiplied by e to the power of its
// x.
func (f *fitter) platform(x []float64) (*nics.Platform, error) {
	values := map[string]float64{}
	for i, name := range f.names {
		v, _ := f.base.Value(name)
		values[name] = v * math.Exp(x[i])
	}
	return f.base.With(values, "fitted: measured curves")
}

// residuals returns for each series the logarithm of the ratio of the prediction with parameters x
// to the measured value.
func (f *fitter) residuals(x []float64) ([]float64, error) {
	p, err := f.platform(x)
	if err != nil {
		return nil, err
	}
	r := make([]float64, len(f.series))
	for i := range f.series {
		v, err := Predict(p, &f.series[i])
		if err != nil {
			return nil, err
		}
		r[i] = math.Log(v / f.goal[i])
	}
	return r, nil
}

// sensitivities returns the matrix of derivatives at x: j[i][k] is that of residual i by parameter
// k, from simulations with the parameter fitStep larger and smaller. r are the residuals at x.
func (f *fitter) sensitivities(x, r []float64) (j [][]float64, err error) {
	j = make([][]float64, len(r))
	for i := range j {
		j[i] = make([]float64, len(x))
	}
	for k := range x {
		moved := slices.Clone(x)
		moved[k] += fitStep
		up, err := f.residuals(moved)
		if err != nil {
			return nil, err
		}
		moved[k] -= 2 * fitStep
		down, err := f.residuals(moved)
		if err != nil {
			return nil, err
		}
		for i := range r {
			j[i][k] = (up[i] - down[i]) / (2 * fitStep)
		}
	}
	return j, nil
}

// step returns better parameters and their residuals; nil if it finds none. It is a Gauss-Newton
// step along the directions that the data determine; along the other directions the parameters
// stay.
func (f *fitter) step(x, r []float64, j [][]float64, singular []float64, v [][]float64) (next, rNext []float64, err error) {
	delta := make([]float64, len(x))
	for k, s := range singular {
		if s*maxError < leastNoise {
			continue
		}
		along := 0.0 // of -Jᵀr
		for i := range r {
			for m := range x {
				along -= j[i][m] * r[i] * v[m][k]
			}
		}
		for m := range x {
			delta[m] += along / (s * s) * v[m][k]
		}
	}
	const longest, halvings, least = 1.0, 4, 1e-4
	scale := 1.0
	for _, d := range delta {
		scale = min(scale, longest/math.Max(math.Abs(d), 1e-9))
	}
	for range halvings {
		next = slices.Clone(x)
		for m := range x {
			next[m] += scale * delta[m]
		}
		if rNext, err = f.residuals(next); err != nil {
			return nil, nil, err
		}
		if rms(rNext) < rms(r)*(1-least) {
			return next, rNext, nil
		}
		scale /= 2
	}
	return nil, nil, nil
}

// combination names the parameters that share in direction k: column k of v, which has the right
// singular vectors of the matrix of sensitivities.
func (f *fitter) combination(v [][]float64, k int) string {
	const matters = 0.3
	var names []string
	for i, name := range f.names {
		if math.Abs(v[i][k]) > matters {
			names = append(names, name)
		}
	}
	if len(names) == 1 {
		return names[0]
	}
	return "one of " + strings.Join(names, ", ") + ": only a combination of them is determined"
}

// standardError returns the standard error of the logarithm of parameter i. singular and v are the
// singular values and right singular vectors of the sensitivities, with v[i][k] that of parameter i
// in vector k; noise is the standard error of the residuals. Each parameter counts as known
// beforehand within a factor of e, so that a combination of parameters that the data do not
// determine does not make other parameters uncertain.
func standardError(singular []float64, v [][]float64, i int, noise float64) float64 {
	sum := 0.0
	for k, s := range singular {
		sum += v[i][k] * v[i][k] / (s*s/(noise*noise) + 1)
	}
	return math.Sqrt(sum)
}

// rms returns the root of the mean of squares.
func rms(r []float64) float64 {
	sum := 0.0
	for _, v := range r {
		sum += v * v
	}
	return math.Sqrt(sum / float64(len(r)))
}

// decompose returns the singular values of j, the largest first, and its right singular vectors as
// columns, by Jacobi's method for the eigenvalues of jᵀj.
func decompose(j [][]float64) (singular []float64, v [][]float64) {
	n := len(j[0])
	a, v := make([][]float64, n), make([][]float64, n)
	for p := range n {
		a[p], v[p] = make([]float64, n), make([]float64, n)
		v[p][p] = 1
		for q := range n {
			for i := range j {
				a[p][q] += j[i][p] * j[i][q]
			}
		}
	}
	const sweeps = 30
	for range sweeps {
		for p := range n {
			for q := p + 1; q < n; q++ {
				rotate(a, v, p, q)
			}
		}
	}
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(a[y][y], a[x][x]) })
	sorted := make([][]float64, n)
	for i := range sorted {
		for _, k := range order {
			sorted[i] = append(sorted[i], v[i][k])
		}
	}
	for _, k := range order {
		singular = append(singular, math.Sqrt(math.Max(a[k][k], 0)))
	}
	return singular, sorted
}

// rotate makes a[p][q] of the symmetric matrix a zero by a rotation, and applies the same rotation
// to v, whose columns become the eigenvectors.
func rotate(a, v [][]float64, p, q int) {
	if math.Abs(a[p][q]) < 1e-15 {
		return
	}
	theta := (a[q][q] - a[p][p]) / (2 * a[p][q])
	t := 1 / (math.Abs(theta) + math.Sqrt(theta*theta+1))
	if theta < 0 {
		t = -t
	}
	c := 1 / math.Sqrt(t*t+1)
	s := t * c
	for i := range a { // columns, and then rows
		a[i][p], a[i][q] = c*a[i][p]-s*a[i][q], s*a[i][p]+c*a[i][q]
		v[i][p], v[i][q] = c*v[i][p]-s*v[i][q], s*v[i][p]+c*v[i][q]
	}
	for i := range a {
		a[p][i], a[q][i] = c*a[p][i]-s*a[q][i], s*a[p][i]+c*a[q][i]
	}
}

// WriteText writes the parameters, what the data do not determine, and the residuals.
func (f *Fit) WriteText(w io.Writer) error {
	var b strings.Builder
	tab := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "parameter\tbefore\tfitted\tstandard error\t")
	for _, p := range f.Parameters {
		verdict := fmt.Sprintf("%.1f %%\t", 100*p.Error)
		if !p.Determined {
			verdict = "\tnot determined by the data"
		}
		fmt.Fprintf(tab, "%s\t%.4g\t%.4g\t%s\n", p.Name, p.Before, p.After, verdict)
	}
	fmt.Fprintln(tab, "\nseries\tmeasured\tfitted\tresidual\t")
	for _, p := range f.Points {
		fmt.Fprintf(tab, "%s\t%s\t%s\t%+.1f %%\t\n", p.Name, p.Unit.Format(p.Measured), p.Unit.Format(p.Fitted), 100*p.Residual)
	}
	tab.Flush()
	fmt.Fprintf(&b, "\nresiduals: %.1f %% (root of the mean of squares); singular values: %.2g\n", 100*f.RMS, f.Singular)
	for _, free := range f.Free {
		fmt.Fprintf(&b, "not determined: %s\n", free)
	}
	if len(f.NotPredicted) > 0 {
		fmt.Fprintf(&b, "not in the simulation: %s\n", strings.Join(f.NotPredicted, ", "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
