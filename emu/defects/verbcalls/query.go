package verbcalls

import (
	"slices"

	"github.com/fabrictest/fabrictest/verbs"
)

// QueryDevice reports limits as 0 (LimitsForgotten), or doubles some (LimitsOverstated).
func (d *device) QueryDevice() (verbs.DeviceAttr, error) {
	a, err := d.Context.QueryDevice()
	if d.q.LimitsOverstated {
		a.MaxAH, a.MaxMW, a.MaxQP = 2*a.MaxAH, 2*a.MaxMW, 2*a.MaxQP
	}
	if d.q.LimitsForgotten {
		a.MaxPD, a.MaxMR, a.MaxMW, a.MaxCQ, a.MaxQP, a.MaxAH = 0, 0, 0, 0, 0, 0
		a.MaxSRQ, a.MaxSRQWR, a.MaxSRQSGE = 0, 0, 0
	}
	return a, err
}

// truth is what the device can do, whatever it is made to say of it.
func (d *device) truth() verbs.DeviceAttr {
	a, _ := d.Context.QueryDevice() // of a closed device nothing
	return a
}

// port is the one that a program means by a number: by PortUnchecked one that there
// is.
func (d *device) port(n uint8) uint8 {
	if d.q.PortUnchecked && (n < 1 || n > d.truth().Ports) {
		return 1
	}
	return n
}

// entry is the index that a program means, in a table whose size of tells: by
// TablesEndless one that there is.
func (d *device) entry(port uint8, index int, of func(verbs.PortAttr) int) int {
	if !d.q.TablesEndless {
		return index
	}
	a, err := d.Context.QueryPort(port)
	if err == nil && (index < 0 || index >= of(a)) {
		return 0
	}
	return index
}

// QueryPort describes a port, with its MTUs the wrong way round by PortMTUsSwapped.
func (d *device) QueryPort(n uint8) (verbs.PortAttr, error) {
	a, err := d.Context.QueryPort(d.port(n))
	if err == nil && d.q.PortMTUsSwapped {
		a.ActiveMTU, a.MaxMTU = verbs.MTU4096, verbs.MTU256
	}
	return a, err
}

// QueryGID returns an entry of the GID table, by GIDsWrong with another last byte.
func (d *device) QueryGID(n uint8, index int) (verbs.GIDEntry, error) {
	n = d.port(n)
	e, err := d.Context.QueryGID(n, d.entry(n, index, func(a verbs.PortAttr) int { return a.GIDs }))
	if err == nil && d.q.GIDsWrong {
		e.GID[len(e.GID)-1] ^= 0xff
	}
	return e, err
}

// QueryPKey returns an entry of the partition table.
func (d *device) QueryPKey(n uint8, index int) (uint16, error) {
	n = d.port(n)
	return d.Context.QueryPKey(n, d.entry(n, index, func(a verbs.PortAttr) int { return a.PKeys }))
}

// Counters begins, by CountersShuffled, one counter later at every call, and
// returns by CountersReset what was counted since the call before. That of
// CounterStuck has counted nothing.
func (d *device) Counters() []verbs.Counter {
	all := slices.Clone(d.Context.Counters())
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range all {
		if all[i].Name == d.q.CounterStuck {
			all[i].Value = 0
		}
	}
	if d.q.CountersReset {
		for i := range all {
			c := &all[i]
			before := d.read[c.Name]
			d.read[c.Name] = c.Value
			c.Value -= before
		}
	}
	if d.q.CountersShuffled && len(all) > 0 {
		first := d.turn % len(all)
		d.turn++
		all = slices.Concat(all[first:], all[:first])
	}
	return all
}
