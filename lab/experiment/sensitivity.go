package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"sync"

	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
)

// Sensitivity is how the figures of an experiment depend on the parameters of its platform.
type Sensitivity struct {
	Scenario string    `json:"scenario"`
	Platform string    `json:"platform"`
	Figures  []Effects `json:"figures"`
}

// Effects are the effects of the parameters on a figure, the largest first.
type Effects struct {
	report.Figure
	Effects []Effect `json:"effects"`
}

// Effect is the value of a figure with a parameter of the platform changed by 20 % down and up;
// nil where, for example, two curves do not cross.
type Effect struct {
	Parameter string   `json:"parameter"`
	Down      *float64 `json:"down,omitempty"`
	Up        *float64 `json:"up,omitempty"`
}

// change is by how much a parameter is changed, down and up, relative to its value.
const change = 0.2

// Measure measures how the figures of a scenario's experiment depend on its platform: it runs the
// experiment unchanged, and with each parameter of the platform 20 % smaller and larger. progress
// is called with the name of the next step and the share that is done.
func Measure(ctx context.Context, s *scenarios.Scenario, seed uint64, progress func(step string, done float64)) (*Sensitivity, error) {
	p, err := platform(s)
	if err != nil {
		return nil, err
	}
	progress("unchanged", 0)
	base, err := figures(ctx, s, p, seed)
	if err != nil {
		return nil, err
	}
	result := &Sensitivity{Scenario: s.Name, Platform: p.Name}
	for _, f := range base {
		result.Figures = append(result.Figures, Effects{Figure: f})
	}
	effects, err := changeEach(ctx, s, p, seed, progress)
	if err != nil {
		return nil, err
	}
	for i, row := range p.Parameters {
		for k := range result.Figures {
			f := &result.Figures[k]
			f.Effects = append(f.Effects, Effect{Parameter: row.Name, Down: effects[i].down[k].Ours, Up: effects[i].up[k].Ours})
		}
	}
	for k := range result.Figures {
		f := &result.Figures[k]
		slices.SortStableFunc(f.Effects, func(a, b Effect) int { return cmp.Compare(b.size(f.Ours), a.size(f.Ours)) })
	}
	return result, nil
}

// effect has the figures with a parameter 20 % smaller (down) and larger (up).
type effect struct {
	down, up []report.Figure
	err      error
}

// changeEach runs the experiment with each parameter of the platform 20 % smaller and larger. It
// returns the effects in the order of the parameters. Each processor runs one parameter at a time.
// progress is called, by one goroutine at a time, with the name of each parameter and the part that
// is done.
func changeEach(ctx context.Context, s *scenarios.Scenario, p *nics.Platform, seed uint64, progress func(step string, done float64)) ([]effect, error) {
	all := make([]effect, len(p.Parameters))
	var mu sync.Mutex // for progress
	var workers sync.WaitGroup
	next := 0
	for range min(runtime.GOMAXPROCS(0), len(all)) {
		workers.Go(func() {
			for ctx.Err() == nil {
				mu.Lock()
				i := next
				next++
				if i < len(all) {
					progress(p.Parameters[i].Name, float64(i+1)/float64(len(all)+1))
				}
				mu.Unlock()
				if i >= len(all) {
					return
				}
				e := &all[i]
				if e.down, e.err = changed(ctx, s, p, seed, p.Parameters[i].Name, 1-change); e.err == nil {
					e.up, e.err = changed(ctx, s, p, seed, p.Parameters[i].Name, 1+change)
				}
			}
		})
	}
	workers.Wait()
	errs := make([]error, 0, 1+len(all))
	errs = append(errs, context.Cause(ctx))
	for i := range all {
		errs = append(errs, all[i].err)
	}
	return all, errors.Join(errs...)
}

// figures runs the experiment on a platform, and returns its figures.
func figures(ctx context.Context, s *scenarios.Scenario, p *nics.Platform, seed uint64) ([]report.Figure, error) {
	m, err := measure(ctx, s, p, seed)
	if err != nil {
		return nil, err
	}
	return m.judgeAll()
}

// changed returns the figures of the experiment on the platform p with the parameter called name
// multiplied by factor.
func changed(ctx context.Context, s *scenarios.Scenario, p *nics.Platform, seed uint64, name string, factor float64) ([]report.Figure, error) {
	other := &nics.Platform{Name: p.Name, Title: p.Title, Provider: p.Provider}
	for _, row := range p.Parameters {
		if row.Name == name {
			row.Value *= factor
		}
		if err := other.Set(row); err != nil {
			return nil, err
		}
	}
	all, err := figures(ctx, s, other, seed)
	if err != nil {
		return nil, fmt.Errorf("%s times %v: %w", name, factor, err)
	}
	return all, nil
}

// size returns the larger of |Down − base| and |Up − base|, where base is the figure with unchanged
// parameters. It is infinite if the figure exists (is not nil) with a changed parameter, but not with
// the unchanged ones, or the reverse, for example because curves no longer cross.
func (e *Effect) size(base *float64) (most float64) {
	for _, v := range []*float64{e.Down, e.Up} {
		switch {
		case v == nil && base == nil:
		case v == nil || base == nil:
			return math.Inf(1)
		default:
			most = max(most, math.Abs(*v-*base))
		}
	}
	return most
}

// WriteTable prints each figure with the parameters that change it by one per cent or more. A
// figure in per cent must also change by a tenth of a percentage point.
func (s *Sensitivity) WriteTable(w io.Writer) error {
	isLarge := func(f *report.Figure, size float64) bool {
		const minShare, minPoints = 0.01, 0.1
		if size == 0 || f.Unit == "%" && size < minPoints {
			return false
		}
		return f.Ours == nil || size >= minShare*math.Abs(*f.Ours)
	}
	_, err := fmt.Fprintf(w, "%s on %s, with each parameter 20 %% down and up:\n", s.Scenario, s.Platform)
	for i := range s.Figures {
		f := &s.Figures[i]
		if err == nil {
			_, err = fmt.Fprintf(w, "\n%s  %s\n    published %s, here %s\n", f.Row, f.Text, f.Published, f.OursText())
		}
		shown := 0
		for _, e := range f.Effects {
			if err == nil && isLarge(&f.Figure, e.size(f.Ours)) {
				down, up := f.Figure, f.Figure
				down.Ours, up.Ours = e.Down, e.Up
				_, err = fmt.Fprintf(w, "    %-28s %12s %12s\n", e.Parameter, down.OursText(), up.OursText())
				shown++
			}
		}
		if err == nil && shown == 0 {
			_, err = fmt.Fprintf(w, "    no parameter changes it by one per cent\n")
		}
	}
	return err
}
