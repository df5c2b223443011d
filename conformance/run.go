package conformance

import (
	"context"
	"sync"
)

// Runner judges many cases.
type Runner struct {
	Lab Lab
	Options
	// Workers is how many cases run at a time.
	Workers int
	// Done, if not nil, is told of every result as it comes, one at a time.
	Done func(Result)
}

// Run judges the cases and returns the results in their order. When ctx ends it
// stops early, and returns what there is and the reason.
func (r *Runner) Run(ctx context.Context, cases []*Case) ([]Result, error) {
	trials := make([]trial, len(cases))
	for i, c := range cases {
		trials[i] = trial{c, r.Options}
	}
	return r.all(ctx, trials)
}

// trial is one case under one set of options.
type trial struct {
	c   *Case
	opt Options
}

func (r *Runner) all(ctx context.Context, trials []trial) ([]Result, error) {
	var (
		results = make([]Result, len(trials))
		told    sync.Mutex
		workers sync.WaitGroup
		next    = make(chan int)
	)
	for range max(1, min(r.Workers, len(trials))) {
		workers.Go(func() {
			for i := range next {
				res := Judge(ctx, r.Lab, trials[i].c, trials[i].opt)
				if ctx.Err() != nil {
					continue // it was cut off: nothing can be said of it
				}
				results[i] = res
				if r.Done != nil {
					told.Lock()
					r.Done(res)
					told.Unlock()
				}
			}
		})
	}
feed:
	for i := range trials {
		select {
		case next <- i:
		case <-ctx.Done():
			break feed
		}
	}
	close(next)
	workers.Wait()
	if err := ctx.Err(); err != nil {
		done := results[:0]
		for _, res := range results {
			if res.Case != nil {
				done = append(done, res)
			}
		}
		return done, err
	}
	return results, nil
}
