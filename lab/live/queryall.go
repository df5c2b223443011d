package live

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"text/tabwriter"
	"time"
)

// State is a lab. One that does not answer has only a name and a PID.
type State struct {
	Info
	Silent bool `json:"silent,omitempty"`
}

// QueryAllTimeout is how long QueryAll waits for labs that do not answer.
const QueryAllTimeout = 4 * time.Second

// QueryAll queries all labs of this user at once.
func QueryAll(ctx context.Context) ([]State, error) {
	names, err := List(ctx)
	if err != nil {
		return nil, err
	}
	states := make([]*State, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() { states[i] = queryState(ctx, name) })
	}
	wg.Wait()
	found := make([]State, 0, len(names))
	for _, s := range states {
		if s != nil {
			found = append(found, *s)
		}
	}
	return found, ctx.Err()
}

// queryState returns nil for a lab that went down meanwhile.
func queryState(ctx context.Context, name string) *State {
	soon, cancel := context.WithTimeout(ctx, QueryAllTimeout)
	defer cancel()
	info, err := Query(soon, name)
	var silent *NotRespondingError
	switch {
	case err == nil:
		return &State{Info: *info}
	case errors.As(err, &silent):
		return &State{Info: Info{Name: name, PID: silent.PID}, Silent: true}
	}
	return nil
}

// WriteStates prints a line for each lab.
func WriteStates(w io.Writer, labs []State) error {
	if len(labs) == 0 {
		_, err := fmt.Fprintln(w, "No lab is up: start one with 'fabrictest lab up'.")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, l := range labs {
		if l.Silent {
			fmt.Fprintf(t, "%s\tdoes not answer\t\tprocess %d\n", l.Name, l.PID)
			continue
		}
		fmt.Fprintf(t, "%s\t%d hosts\t%d programs\tprocess %d\n", l.Name, len(l.Topology.Hosts), l.Programs, l.PID)
	}
	return t.Flush()
}
