package lab

import (
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/scenarios"
)

// addImpairments adds the scenario's impairments to the ports, in the order of the
// file.
func (p *Plan) addImpairments() error {
	var errs []error
	for i := range p.Scenario.Impair {
		im, key := &p.Scenario.Impair[i], fmt.Sprintf("impair[%d]", i)
		spec := specOf(im)
		if err := spec.Validate(); err != nil {
			errs = append(errs, p.errorf(key, "%w", err))
			continue
		}
		ports, err := p.selectPorts(key+".on", im.On)
		errs = append(errs, err)
		p.eachDirection(ports, im.PortSelector, func(m *Impairments) { m.Specs = append(m.Specs, spec) })
	}
	return errors.Join(errs...)
}

// specOf converts the impairments of a scenario.
func specOf(im *scenarios.Impairment) impair.Spec {
	return impair.Spec{
		From: mono.Time(im.From), Until: mono.Time(im.Until),
		LossPPM: uint32(im.Loss),
		Burst: impair.GilbertElliott{
			ToBadPPM: uint32(im.Burst.ToBad), ToGoodPPM: uint32(im.Burst.ToGood), LossBadPPM: uint32(im.Burst.Loss),
		},
		DuplicatePPM: uint32(im.Duplicate), DuplicateDelay: im.DuplicateDelay,
		ReorderPPM: uint32(im.Reorder), ReorderDelay: im.ReorderDelay,
		Delay: im.Delay, Jitter: im.Jitter, KeepOrder: im.KeepOrder,
		CorruptPPM: uint32(im.Corrupt), TruncatePPM: uint32(im.Truncate), MarkPPM: uint32(im.Mark),
		RateBps: uint64(im.Rate), QueueBytes: int(im.Queue),
	}
}

// addEvents adds the scenario's events to the ports. An event with several
// directions counts packets in each of them separately.
func (p *Plan) addEvents() error {
	var errs []error
	for i := range p.Scenario.Events {
		e, key := &p.Scenario.Events[i], fmt.Sprintf("events[%d]", i)
		if e.Offset != nil {
			errs = append(errs, p.addStreamEvent(i))
			continue
		}
		event := eventOf(e)
		if err := event.Validate(p.Provider.Dissector); err != nil {
			errs = append(errs, p.errorf(key, "%w", err))
			continue
		}
		ports, err := p.selectPorts(key+".on", e.On)
		errs = append(errs, err)
		p.eachDirection(ports, e.PortSelector, func(m *Impairments) {
			m.Events = append(m.Events, event)
			m.EventIndexes = append(m.EventIndexes, i)
		})
	}
	return errors.Join(errs...)
}

// eachDirection calls f once for each direction that the port ends and where
// select.
func (p *Plan) eachDirection(ends []portEnd, where scenarios.PortSelector, f func(*Impairments)) {
	done := make(map[*Impairments]bool)
	for _, end := range ends {
		out, in := &p.Ports[end.port].Out, &p.Ports[end.port].In
		if end.reversed {
			out, in = in, out
		}
		for _, m := range []struct {
			selected bool
			*Impairments
		}{{where.Outward(), out}, {where.Inward(), in}} {
			if m.selected && !done[m.Impairments] {
				done[m.Impairments] = true
				f(m.Impairments)
			}
		}
	}
}

// eventOf converts an event of a scenario.
func eventOf(e *scenarios.Event) impair.Event {
	out := impair.Event{
		Match:      impair.Match{Seq: e.PSN},
		Occurrence: e.Time,
		Action: impair.Action{
			Kind: impair.ActionKind(e.Do), Count: e.Count, Delay: e.Delay, Bit: e.Bit, Bytes: int(e.Bytes),
			ECN: e.ECN, Field: e.Field, Value: e.Value,
		},
	}
	if e.QP != nil {
		out.Match.Flow = new(impair.Flow(*e.QP))
	}
	if e.Nth > 0 {
		out.Match.Nth = &e.Nth
	}
	return out
}
