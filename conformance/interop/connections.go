package interop

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// ConnectionsResult is many connections, one after the other.
type ConnectionsResult struct {
	Made   int           `json:"made"`
	Failed []string      `json:"failed,omitempty"` // what went wrong, at most maxFailures
	Took   time.Duration `json:"took"`
	// Before and After are the objects on the devices, by end and kind.
	Before map[Side]map[string]int `json:"before"`
	After  map[Side]map[string]int `json:"after"`
	// Left says what is there afterwards that was not there before.
	Leaked []string `json:"left,omitempty"`
}

// OK says that all of them were made and used, and that nothing was left over.
func (t *ConnectionsResult) OK() bool { return len(t.Failed) == 0 && len(t.Leaked) == 0 }

// maxFailures is how many connections may fail before that is enough.
const maxFailures = 10

// RunConnections makes connections by the connection manager, one after the other, each with
// queues and memory of its own: of either family, from either end. Over each some data
// goes each way and is checked. Then all is closed, and in the end there must be as
// many objects on both devices as before. told is told how many there were; it may be
// nil.
func (s *Suite) RunConnections(ctx context.Context, n int, told func(done int)) (*ConnectionsResult, error) {
	if err := s.prepare(); err != nil {
		return nil, err
	}
	// The first of each kind may have something made that stays: of it, nothing is said.
	ways, families := []ConnectMethod{CMOurs, CMTheirs}, slices.Sorted(maps.Keys(s.sides))
	for _, way := range ways {
		for _, family := range families {
			if err := s.once(way, family, 0); err != nil {
				return nil, fmt.Errorf("the first connection: %w", err)
			}
		}
	}
	t := &ConnectionsResult{}
	var err error
	if t.Before, err = s.settled(ctx, nil); err != nil {
		return nil, err
	}
	began := time.Now()
	for i := range n {
		if ctx.Err() != nil {
			return t, context.Cause(ctx)
		}
		way, family := ways[i%2], families[i/2%len(families)]
		if err := s.once(way, family, uint64(i)); err != nil {
			t.Failed = append(t.Failed, fmt.Sprintf("connection %d (%s, %s): %v", i+1, way, family, err))
			if len(t.Failed) == maxFailures {
				break
			}
		}
		t.Made++
		if told != nil {
			told(t.Made)
		}
	}
	t.Took = time.Since(began)
	if t.After, err = s.settled(ctx, t.Before); err != nil {
		return t, err
	}
	t.Leaked = left(t.Before, t.After)
	return t, nil
}

// once is one connection.
func (s *Suite) once(way ConnectMethod, family Family, seed uint64) error {
	l, err := s.connect(recipe{service: verbs.QPTypeRC, way: way, family: family})
	if err != nil {
		return err
	}
	const size = 100
	use := func(name string, by Side, seed uint64) func() error {
		return func() error {
			op, err := find(name)
			if err != nil {
				return err
			}
			return l.exchange(Case{Op: name, By: by, Method: way, Family: family, Size: size}, op, seed)
		}
	}
	err = inTurn(use("send", way.connector(), seed), use("read", way.connector().other(), ^seed))
	l.gone = err != nil
	return errors.Join(err, l.end())
}

// settled counts the objects of both ends, and waits a while for them to become as few
// as before; of those who cannot tell there are none.
func (s *Suite) settled(ctx context.Context, before map[Side]map[string]int) (map[Side]map[string]int, error) {
	for until := time.Now().Add(s.CloseTimeout); ; {
		now := make(map[Side]map[string]int)
		for who, end := range map[Side]*End{Ours: s.Ours, Theirs: s.Theirs} {
			if end.Objects == nil {
				continue
			}
			count, err := end.Objects(ctx)
			if err != nil {
				return nil, fmt.Errorf("count the objects of %s: %w", end.Name, err)
			}
			now[who] = count
		}
		if before == nil || len(left(before, now)) == 0 || time.Now().After(until) {
			return now, nil
		}
		select {
		case <-ctx.Done():
			return now, context.Cause(ctx)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// left is what there is more of than before.
func left(before, after map[Side]map[string]int) (all []string) {
	for _, who := range []Side{Ours, Theirs} {
		for _, kind := range slices.Sorted(maps.Keys(after[who])) {
			if n := after[who][kind] - before[who][kind]; n > 0 {
				all = append(all, fmt.Sprintf("%s: %d more of %s than before (%d)", who, n, kind, before[who][kind]))
			}
		}
	}
	return all
}
