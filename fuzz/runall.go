package fuzz

import (
	"context"
	"time"
)

// RunAll fuzzes the targets one after the other, targets[i] for times[i], until ctx is cancelled.
// The results, also failures and errors of targets, are in the table: RunAll returns an error only
// if nothing can be fuzzed.
func (tree *Tree) RunAll(ctx context.Context, targets []Target, times []time.Duration, table *Table) error {
	if err := tree.Prepare(ctx); err != nil {
		return err
	}
	defer tree.Close()
	for i, t := range targets {
		if ctx.Err() != nil {
			break
		}
		table.Add(tree.Run(ctx, t, times[i], table.Progress))
	}
	table.Finish()
	return nil
}
