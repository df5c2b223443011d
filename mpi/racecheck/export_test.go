package racecheck

import "github.com/fabrictest/fabrictest/explore"

// Take returns the findings, and forgets them, so that the next program of a simulation has its own.
func (c *Checker) Take() []explore.Finding {
	found := c.findings
	c.findings, c.reported = nil, map[reportKey]bool{}
	return found
}
