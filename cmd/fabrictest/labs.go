package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/lab/live"
)

func newDownCommand() *cobra.Command {
	all := false
	cmd := &cobra.Command{
		Use:   "down [LAB]",
		Short: "Take a fabric down, with all programs in it",
		Example: `  fabrictest down
  fabrictest down tree
  fabrictest down --all`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			names := append(args, live.DefaultName)[:1]
			if all {
				up, err := live.List(cmd.Context())
				if err != nil {
					return err
				}
				names = up
			}
			var errs []error
			for _, n := range names {
				err := live.Down(cmd.Context(), n)
				if err == nil {
					_, err = fmt.Fprintf(cmd.OutOrStdout(), "Lab %s is down.\n", n)
				}
				errs = append(errs, err)
			}
			return errors.Join(errs...)
		},
		ValidArgsFunction: completeLabs,
	}
	cmd.Flags().BoolVar(&all, "all", false, "all labs of this user")
	return cmd
}

func newLabsCommand() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:     "labs",
		Short:   "List the fabrics that are up",
		Example: "  fabrictest labs\n  fabrictest labs --json | jq -r '.[].topology.hosts[]?.name'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			found, err := allLabs(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), found)
			}
			return listLabs(cmd.OutOrStdout(), found)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// labState is a lab, and whether it says what it is like.
type labState struct {
	live.Info
	Silent bool `json:"silent,omitempty"`
}

// labsWait is how long `labs` waits for those that do not answer.
const labsWait = 4 * time.Second

// allLabs asks all labs at once: those that do not answer keep nobody waiting for
// the others.
func allLabs(ctx context.Context) ([]labState, error) {
	names, err := live.List(ctx)
	if err != nil {
		return nil, err
	}
	asked := make([]*labState, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() { asked[i] = askLab(ctx, name) })
	}
	wg.Wait()
	found := make([]labState, 0, len(names))
	for _, s := range asked {
		if s != nil {
			found = append(found, *s)
		}
	}
	return found, ctx.Err()
}

// askLab returns nil for a lab that went down meanwhile.
func askLab(ctx context.Context, name string) *labState {
	soon, cancel := context.WithTimeout(ctx, labsWait)
	defer cancel()
	info, err := live.Query(soon, name)
	var silent *live.NotRespondingError
	switch {
	case err == nil:
		return &labState{Info: *info}
	case errors.As(err, &silent):
		return &labState{Info: live.Info{Name: name, PID: silent.PID}, Silent: true}
	}
	return nil
}

func listLabs(w io.Writer, found []labState) error {
	if len(found) == 0 {
		_, err := fmt.Fprintln(w, "No lab is up: start one with 'fabrictest up'.")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, l := range found {
		if l.Silent {
			fmt.Fprintf(t, "%s\tdoes not answer\t\tprocess %d\n", l.Name, l.PID)
			continue
		}
		fmt.Fprintf(t, "%s\t%d hosts\t%d programs\tprocess %d\n", l.Name, len(l.Topology.Hosts), l.Programs, l.PID)
	}
	return t.Flush()
}
