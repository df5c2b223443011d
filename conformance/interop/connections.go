package interop

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// ConnectionsResult is the result of [Suite.RunConnections].
type ConnectionsResult struct {
	Made   int           `json:"made"`             // also counts failed ones, but not the one that ended the run
	Failed []string      `json:"failed,omitempty"` // errors, at most maxFailures
	Took   time.Duration `json:"took"`
	// Before and After are the numbers of objects on the devices, by side and kind.
	Before map[Side]map[string]int `json:"before"`
	After  map[Side]map[string]int `json:"after"`
	// Leaked describes objects that were not released.
	Leaked []string `json:"left,omitempty"`
}

// OK reports whether all connections worked and no object leaked.
func (r *ConnectionsResult) OK() bool { return len(r.Failed) == 0 && len(r.Leaked) == 0 }

// maxFailures is the number of failed connections after which the run stops.
const maxFailures = 10

// RunConnections makes n connections by the connection manager, one after the other, from both
// sides and over all address families. It transfers data over each in both directions and closes
// it, until maxFailures have failed. It counts the objects (QPs, CQs, …) of both devices before and
// after. progress, unless nil, is called with the number of connections so far, also failed ones.
func (s *Suite) RunConnections(ctx context.Context, n int, progress func(done int)) (*ConnectionsResult, error) {
	if err := s.prepare(); err != nil {
		return nil, err
	}
	// Make a connection of each kind before objects are counted: the first may leave objects.
	methods, families := []ConnectMethod{CMOurs, CMTheirs}, slices.Sorted(maps.Keys(s.endpoints))
	for _, method := range methods {
		for _, family := range families {
			if err := s.exchangeOnce(method, family, 0); err != nil {
				return nil, fmt.Errorf("the first connection: %w", err)
			}
		}
	}
	result := &ConnectionsResult{}
	var err error
	if result.Before, err = s.countObjects(ctx, nil); err != nil { // nil: at once, without a wait for releases
		return nil, err
	}
	began := time.Now()
	for i := range n {
		if ctx.Err() != nil {
			return result, context.Cause(ctx)
		}
		method, family := methods[i%2], families[i/2%len(families)]
		if err := s.exchangeOnce(method, family, uint64(i)); err != nil {
			result.Failed = append(result.Failed, fmt.Sprintf("connection %d (%s, %s): %v", i+1, method, family, err))
			if len(result.Failed) == maxFailures {
				break
			}
		}
		result.Made++ // also if it failed, except for the failure that ends the run
		if progress != nil {
			progress(result.Made)
		}
	}
	result.Took = time.Since(began)
	if result.After, err = s.countObjects(ctx, result.Before); err != nil {
		return result, err
	}
	result.Leaked = leaked(result.Before, result.After)
	return result, nil
}

// exchangeOnce makes a connection, on which the active side sends a message and the passive side
// reads memory of the active side, and closes it. seed determines the data. rig.Catch recovers the
// panic by which must or a step of an operation reports an error. Closing a broken pair sends no
// data, and ignores an error of Disconnect.
func (s *Suite) exchangeOnce(method ConnectMethod, family Family, seed uint64) error {
	pair, err := s.connect(pairSetup{service: verbs.QPTypeRC, method: method, family: family})
	if err != nil {
		return err
	}
	const size = 100
	execute := func(name string, by Side, seed uint64) {
		op, err := findOperation(name)
		must(err)
		must(pair.exchange(Case{Op: name, By: by, Method: method, Family: family, Size: size}, op, seed))
	}
	err = rig.Catch(func() {
		execute("send", method.connector(), seed)
		execute("read", method.connector().other(), ^seed)
	})
	pair.broken = err != nil
	return errors.Join(err, pair.close())
}

// countObjects counts the objects of both devices. Unless before is nil, it waits up to
// CloseTimeout for the numbers to fall to those of before. Devices that cannot count are left out.
func (s *Suite) countObjects(ctx context.Context, before map[Side]map[string]int) (map[Side]map[string]int, error) {
	for until := time.Now().Add(s.CloseTimeout); ; {
		now := make(map[Side]map[string]int)
		for side, end := range map[Side]*End{Ours: s.Ours, Theirs: s.Theirs} {
			if end.Objects == nil {
				continue
			}
			count, err := end.Objects(ctx)
			if err != nil {
				return nil, fmt.Errorf("count the objects of %s: %w", end.Name, err)
			}
			now[side] = count
		}
		if before == nil || len(leaked(before, now)) == 0 || time.Now().After(until) {
			return now, nil
		}
		select {
		case <-ctx.Done():
			return now, context.Cause(ctx)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// leaked returns a text for each side and kind of object whose number is greater after than before.
func leaked(before, after map[Side]map[string]int) (all []string) {
	for _, side := range []Side{Ours, Theirs} {
		for _, kind := range slices.Sorted(maps.Keys(after[side])) {
			if n := after[side][kind] - before[side][kind]; n > 0 {
				all = append(all, fmt.Sprintf("%s: %d more of %s than before (%d)", side, n, kind, before[side][kind]))
			}
		}
	}
	return all
}
