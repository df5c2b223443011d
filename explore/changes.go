package explore

import (
	"fmt"
	"strconv"
	"strings"
)

// maxChoices limits the choices of a path that is read from a text.
const maxChoices = 100_000_000

// Changes returns the choices of a path that are not 0, each on a line after its number:
// "17 event:2/4". Most choices of a shrunk path are 0.
func (p Path) Changes() string {
	var b strings.Builder
	for _, c := range p.changes() {
		fmt.Fprintln(&b, c.step, c.Choice)
	}
	return b.String()
}

// ParseChanges parses the text of Changes. [ReplayRun] accepts any choice where the path that it
// returns has one without a kind.
func ParseChanges(text string) (Path, error) {
	var p Path
	for line := range strings.Lines(text) {
		number, choice, _ := strings.Cut(strings.TrimSpace(line), " ")
		if number == "" {
			continue
		}
		step, err := strconv.Atoi(number)
		if err != nil || step < len(p) || step > maxChoices {
			return nil, fmt.Errorf("choice %q of the path: begin with its number, which must be larger than the one before", strings.TrimSpace(line))
		}
		c, err := parseChoice(choice)
		if err != nil {
			return nil, fmt.Errorf("choice %d of the path, %q: %w", step, choice, err)
		}
		p = append(append(p, make(Path, step-len(p))...), c)
	}
	return p, nil
}
