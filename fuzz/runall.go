package fuzz

import (
	"context"
	"time"
)

// RunAll fuzzes the targets one after the other, targets[i] for times[i], until ctx is
// cancelled, and adds the results to the table.
func (f *Tree) RunAll(ctx context.Context, targets []Target, times []time.Duration, table *Table) error {
	if err := f.Prepare(ctx); err != nil {
		return err
	}
	defer f.Close()
	for i, t := range targets {
		if ctx.Err() != nil {
			break
		}
		table.Add(f.Run(ctx, t, times[i], table.Progress))
	}
	table.Finish()
	return nil
}
