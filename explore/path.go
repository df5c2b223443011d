package explore

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// Choice is one decision of a run: Picked of Of alternatives, counted from 0.
type Choice struct {
	Kind       string
	Picked, Of int
}

func (c Choice) String() string { return fmt.Sprintf("%s:%d/%d", c.Kind, c.Picked, c.Of) }

// Path is the list of the choices of a run.
type Path []Choice

// String returns the path on one line, as "run:2/3 event:1/4".
func (p Path) String() string {
	all := make([]string, len(p))
	for i, c := range p {
		all[i] = c.String()
	}
	return strings.Join(all, " ")
}

// ParsePath parses the text of a path.
func ParsePath(text string) (Path, error) {
	var p Path
	for word := range strings.FieldsSeq(text) {
		c, err := parseChoice(word)
		if err != nil {
			return nil, fmt.Errorf("choice %d of the path, %q: %w", len(p), word, err)
		}
		p = append(p, c)
	}
	return p, nil
}

func parseChoice(word string) (c Choice, err error) {
	kind, numbers, _ := strings.Cut(word, ":")
	picked, of, _ := strings.Cut(numbers, "/")
	if !validKind(kind) {
		return c, fmt.Errorf("want KIND:PICKED/OF, with letters, digits and - in KIND")
	}
	c.Kind = kind
	if c.Picked, err = strconv.Atoi(picked); err == nil {
		c.Of, err = strconv.Atoi(of)
	}
	switch {
	case err != nil:
		return c, fmt.Errorf("want KIND:PICKED/OF with decimal numbers")
	case c.Picked < 0 || c.Picked >= c.Of:
		return c, fmt.Errorf("want 0 <= PICKED < OF")
	}
	return c, nil
}

// validKind reports whether the text of a choice of this kind can be parsed.
func validKind(kind string) bool {
	return kind != "" && !strings.ContainsFunc(kind, func(r rune) bool {
		return r != '-' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
}
