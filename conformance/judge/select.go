package judge

import (
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/internal/cmdline"
)

// Select returns the cases of suites that a filter selects.
func Select(f *conformance.Filter, all []*conformance.Suite) (cases []Case) {
	for _, s := range all {
		for _, c := range f.Select(s) {
			cases = append(cases, Case{s, c})
		}
	}
	return cases
}

// CheckLabels returns an error for the first label of a flag that no case of the suites
// has.
func CheckLabels(flag string, labels []string, all []*conformance.Suite) error {
	known := Labels(all)
	for _, l := range labels {
		if !slices.Contains(known, l) {
			return cmdline.Errorf("%s %s: no case has it; %s", flag, l, cmdline.DidYouMean(l, known, "fabrictest list cases --json"))
		}
	}
	return nil
}

// ParseLevel reads the value of --level; empty for all levels.
func ParseLevel(text string) (conformance.Level, error) {
	level := conformance.Level(strings.ToUpper(text))
	if text != "" && !slices.Contains([]conformance.Level{conformance.Must, conformance.Should, conformance.May}, level) {
		return "", cmdline.Errorf("--level %s: give must, should or may", text)
	}
	return level, nil
}

// NoSuchCase returns the error for a pattern that matches no case, with similar names.
func NoSuchCase(pattern string) error {
	return cmdline.Errorf("no case is called %q; %s", pattern, cmdline.DidYouMean(pattern, append(caseAreas(), caseIDs()...), "fabrictest list cases"))
}

// caseIDs returns the IDs of all cases.
func caseIDs() (ids []string) {
	for _, s := range Suites() {
		for i := range s.Cases {
			ids = append(ids, s.Cases[i].ID)
		}
	}
	return ids
}

// caseAreas returns the first parts of IDs: rc and rc/psn of rc/psn/gap.
func caseAreas() (areas []string) {
	for _, id := range caseIDs() {
		parts := strings.SplitN(id, "/", 3)
		areas = append(areas, parts[0], parts[0]+"/"+parts[1])
	}
	slices.Sort(areas)
	return slices.Compact(areas)
}

// Labels returns the labels of all cases of some suites, sorted.
func Labels(all []*conformance.Suite) (labels []string) {
	for _, s := range all {
		for i := range s.Cases {
			labels = append(labels, s.Cases[i].AllLabels()...)
		}
	}
	slices.Sort(labels)
	return slices.Compact(labels)
}
