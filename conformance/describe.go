package conformance

import (
	"fmt"
	"slices"
	"strings"
)

// Descriptions are the titles of cases, what they send and expect, and the defects that
// they catch, by the ID of the case. See [ParseDescriptions].
type Descriptions map[string]description

type description struct {
	title, sends, expects string
	defects               []string
}

// ParseDescriptions reads a text with five lines for each case, and an empty line after
// them: the ID, the title, "sends", "expects" and "catches". It panics if the text is
// malformed.
func ParseDescriptions(text string) Descriptions {
	all := make(Descriptions)
	for entry := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		lines := strings.Split(entry, "\n")
		if len(lines) != 5 || all[lines[0]].title != "" {
			panic(fmt.Sprintf("the description of a case has not five lines, or is there twice:\n%s", entry))
		}
		field := func(line, name string) string {
			value, ok := strings.CutPrefix(line, "  "+name)
			if !ok {
				panic(fmt.Sprintf("the description of %s lacks %q", lines[0], name))
			}
			return strings.TrimSpace(value)
		}
		all[lines[0]] = description{
			field(lines[1], ""), field(lines[2], "sends"), field(lines[3], "expects"), strings.Split(field(lines[4], "catches"), ", "),
		}
	}
	return all
}

// Describe returns the cases with their descriptions. Cases that have a title keep it.
func (d Descriptions) Describe(cases []Case) []Case {
	all := slices.Clone(cases)
	for i := range all {
		if c := &all[i]; c.Title == "" {
			text := d[c.ID]
			c.Title, c.Sends, c.Expects, c.Defects = text.title, text.sends, text.expects, text.defects
		}
	}
	return all
}

// Unused returns the IDs of descriptions that no case has.
func (d Descriptions) Unused(cases []Case) (ids []string) {
	for id := range d {
		if !slices.ContainsFunc(cases, func(c Case) bool { return c.ID == id }) {
			ids = append(ids, id)
		}
	}
	return ids
}
