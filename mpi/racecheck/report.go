package racecheck

import (
	"fmt"
	"strings"

	"github.com/fabrictest/fabrictest/explore"
)

// DataRace is the kind of the findings.
const DataRace = "data race"

// maxFindings limits the findings that are kept.
const maxFindings = 100

// reportKey identifies a finding: of the same two calls, one is enough.
type reportKey struct {
	first, second         explore.Place
	firstKind, secondKind Kind
}

// Findings returns the races that were found, and how many more there were than are kept.
func (c *Checker) Findings() (found []explore.Finding, more int) { return c.findings, c.suppressed }

// report reports a race of two accesses, the second of which was seen later.
func (c *Checker) report(first, second *access) {
	key := reportKey{first.place, second.place, first.kind, second.kind}
	reverse := reportKey{second.place, first.place, second.kind, first.kind}
	if c.reported[key] || c.reported[reverse] {
		return
	}
	c.reported[key] = true
	if len(c.findings) == maxFindings {
		c.suppressed++
		return
	}
	c.findings = append(c.findings, explore.Finding{
		Kind:   DataRace,
		Text:   fmt.Sprintf("data race on %s: %s, and %s: %s", c.location(first, second), first.describe(), second.describe(), missingOrder(first, second)),
		Places: []explore.Place{first.place, second.place},
	})
}

// location describes the bytes that both accesses have in common.
func (c *Checker) location(a, b *access) string {
	from, to := max(a.from, b.from), min(a.to, b.to)
	n := int(to - from)
	for _, w := range c.ordered {
		for i := range w.ranks {
			if r := &w.ranks[i]; w.covers(i, from, to) {
				return fmt.Sprintf("window %s, memory of rank %d, %d bytes at offset %d", w.name, i, n, from-addressOf(r.mem))
			}
		}
	}
	owner := a
	if b.isBuffer && !a.isBuffer {
		owner = b
	}
	return fmt.Sprintf("a buffer of rank %d, %d bytes at offset %d of the buffer of %s", owner.place.Rank, n, from-owner.from, owner.place.Call)
}

// describe returns what an access does, by whom and where.
func (a *access) describe() string {
	verb := [...]string{Load: "loads", Store: "stores", Get: "reads", Put: "writes", AtomicRead: "reads atomically", AtomicWrite: "updates atomically"}[a.kind]
	file := a.place.File[strings.LastIndexByte(a.place.File, '/')+1:]
	return fmt.Sprintf("%s of rank %d (%s:%d) %s", a.place.Call, a.place.Rank, file, a.place.Line, verb)
}

// missingOrder says which half of the order of two accesses is missing, and what would add it.
func missingOrder(first, second *access) string {
	isRemote := first.kind != Load && first.kind != Store
	startsBefore := epoch{first.place.Rank, first.start[first.place.Rank]}.isBefore(second.start)
	where, remedy := "at its origin", "wait for its request, flush it or close its epoch"
	if isRemote {
		where, remedy = "at the target", "flush it, or close its epoch"
	}
	switch {
	case first.done.at == 0 && first.place.Rank == second.place.Rank:
		return fmt.Sprintf("%s is not complete %s before %s; %s in between", first.place.Call, where, second.place.Call, remedy)
	case first.done.at == 0 && startsBefore:
		return fmt.Sprintf("the ranks are synchronised, but %s is not complete %s; %s before the synchronisation", first.place.Call, where, remedy)
	case first.done.at == 0:
		return fmt.Sprintf("%s is not complete %s, and no synchronisation orders the ranks; %s, then synchronise, for example with a barrier", first.place.Call, where, remedy)
	case startsBefore:
		return fmt.Sprintf("the ranks are synchronised before %s is complete %s; complete it before the synchronisation", first.place.Call, where)
	case isRemote:
		return fmt.Sprintf("%s is complete %s, but no synchronisation leads from there to %s; add a barrier or a message after its completion", first.place.Call, where, second.place.Call)
	}
	return fmt.Sprintf("no synchronisation leads from %s to %s; add a fence, a barrier or a message in between", first.place.Call, second.place.Call)
}
