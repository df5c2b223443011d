package mpihost

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/explore"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/misuse"
	"github.com/fabrictest/fabrictest/mpi/racecheck"
)

// Names of checkers of the ranks' calls, in simulation.
const (
	CheckRaces        = "races"
	CheckMisuse       = "misuse"
	CheckUnsafe       = "unsafe"        // CheckMisuse with synchronous sends
	CheckMessageRaces = "message-races" // CheckMisuse with races of messages
)

// Checks returns the names of all checkers.
func Checks() []string { return []string{CheckRaces, CheckMisuse, CheckUnsafe, CheckMessageRaces} }

// FindingsError is returned if checkers found errors of a program.
type FindingsError struct {
	Findings []explore.Finding
	More     int // findings that were not kept
}

// Error returns the findings with their places.
func (e *FindingsError) Error() string {
	var b strings.Builder
	for i := range e.Findings {
		b.WriteString("\n" + strings.TrimSuffix(misuse.Text(&e.Findings[i]), "\n"))
	}
	if e.More > 0 {
		fmt.Fprintf(&b, "\nand %d more", e.More)
	}
	return strings.TrimPrefix(b.String(), "\n")
}

// checkers are those of a simulation.
type checkers struct {
	races  *racecheck.Checker
	misuse *misuse.Checker
}

// maxExplained is the number of ranks up to which a run without CheckMisuse explains a hang: the places of
// calls take about a microsecond each.
const maxExplained = 64

// newCheckers returns the checkers with some names. Without one of misuse, it only explains hangs.
func newCheckers(names []string, ranks int) (*checkers, error) {
	c := new(checkers)
	o := misuse.Options{OnlyWaits: true}
	for _, name := range names {
		switch name {
		case CheckRaces:
			c.races = racecheck.New(ranks)
		case CheckMisuse:
			o.OnlyWaits = false
		case CheckUnsafe:
			o.OnlyWaits, o.Synchronous = false, true
		case CheckMessageRaces:
			o.OnlyWaits, o.MessageRaces = false, true
		default:
			return nil, fmt.Errorf("no checker %q: there are %s", name, strings.Join(Checks(), ", "))
		}
	}
	if !o.OnlyWaits || ranks <= maxExplained {
		c.misuse = misuse.New(o)
	}
	return c, nil
}

// explain is a Fabric.Explain.
func (c *checkers) explain() string {
	if c.misuse == nil {
		return ""
	}
	return c.misuse.WaitGraph()
}

// set lets ranks with these options tell the checkers their calls.
func (c *checkers) set(o *mpi.Options) { o.Races, o.Misuse = c.races, c.misuse }

// findings returns what the checkers have found, and how many more findings were not kept.
func (c *checkers) findings() (all []explore.Finding, more int) {
	if c.races != nil {
		all, more = c.races.Findings()
	}
	if c.misuse != nil {
		all = slices.Concat(all, c.misuse.Findings())
	}
	return all, more
}

// err returns the findings as a FindingsError; nil if there are none.
func (c *checkers) err() error {
	all, more := c.findings()
	if len(all) == 0 {
		return nil
	}
	return &FindingsError{all, more}
}
