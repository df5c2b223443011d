package racecheck

import (
	"fmt"
	"strings"
)

// Finding is a race, with the places of both accesses.
type Finding struct {
	Text   string
	Places []Place
}

// maxFindings limits the findings that are kept.
const maxFindings = 100

// reportKey identifies a finding: of the same two calls, one is enough.
type reportKey struct {
	first, second         Place
	firstKind, secondKind Kind
}

// Findings returns the races that were found, and how many more there were than are kept.
func (c *Checker) Findings() (found []Finding, more int) { return c.findings, c.suppressed }

// report reports a race of two accesses, the second of which was seen later.
func (c *Checker) report(first, second *access) {
	key := reportKey{first.Place, second.Place, first.kind, second.kind}
	reverse := reportKey{second.Place, first.Place, second.kind, first.kind}
	if c.reported[key] || c.reported[reverse] {
		return
	}
	c.reported[key] = true
	if len(c.findings) == maxFindings {
		c.suppressed++
		return
	}
	c.findings = append(c.findings, Finding{
		Text:   fmt.Sprintf("data race on %s: %s, and %s: %s", c.location(first, second), first.describe(), second.describe(), missingOrder(first, second)),
		Places: []Place{first.Place, second.Place},
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
	return fmt.Sprintf("a buffer of rank %d, %d bytes at offset %d of the buffer of %s", owner.Rank, n, from-owner.from, owner.Call)
}

// describe returns what an access does, by whom and where.
func (a *access) describe() string {
	verb := [...]string{Load: "loads", Store: "stores", Get: "reads", Put: "writes", AtomicRead: "reads atomically", AtomicWrite: "updates atomically"}[a.kind]
	file := a.File[strings.LastIndexByte(a.File, '/')+1:]
	return fmt.Sprintf("%s of rank %d (%s:%d) %s", a.Call, a.Rank, file, a.Line, verb)
}

// missingOrder says which half of the order of two accesses is missing, and what would add it.
func missingOrder(first, second *access) string {
	isRemote := first.kind != Load && first.kind != Store
	startsBefore := epoch{first.Rank, first.start[first.Rank]}.isBefore(second.start)
	where, remedy := "at its origin", "wait for its request, flush it or close its epoch"
	if isRemote {
		where, remedy = "at the target", "flush it, or close its epoch"
	}
	switch {
	case first.done.at == 0 && first.Rank == second.Rank:
		return fmt.Sprintf("%s is not complete %s before %s; %s in between", first.Call, where, second.Call, remedy)
	case first.done.at == 0 && startsBefore:
		return fmt.Sprintf("the ranks are synchronised, but %s is not complete %s; %s before the synchronisation", first.Call, where, remedy)
	case first.done.at == 0:
		return fmt.Sprintf("%s is not complete %s, and no synchronisation orders the ranks; %s, then synchronise, for example with a barrier", first.Call, where, remedy)
	case startsBefore:
		return fmt.Sprintf("the ranks are synchronised before %s is complete %s; complete it before the synchronisation", first.Call, where)
	case isRemote:
		return fmt.Sprintf("%s is complete %s, but no synchronisation leads from there to %s; add a barrier or a message after its completion", first.Call, where, second.Call)
	}
	return fmt.Sprintf("no synchronisation leads from %s to %s; add a fence, a barrier or a message in between", first.Call, second.Call)
}
