package conformance_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/conformance"
)

func TestChoice(t *testing.T) {
	s := &conformance.Suite{Name: "s"}
	for _, id := range []string{"rc/psn/gap", "rc/psn/wrap", "rc/psnx/odd", "ud/len/long", "ud/len/panics"} {
		s.Cases = append(s.Cases, *paperCase(id, "Flaw"))
	}
	s.Cases[1].Level = conformance.Should
	s.Cases[2].Level = conformance.May
	s.Cases[3].Labels = []string{"service:ud"}
	s.Cases[4].Labels = []string{"service:ud", conformance.Dangerous}
	for _, tc := range []struct {
		choice conformance.Choice
		want   string
	}{
		{conformance.Choice{}, "rc/psn/gap rc/psn/wrap rc/psnx/odd ud/len/long"},
		{conformance.Choice{Dangerous: true, Labels: []string{"service:ud"}}, "ud/len/long ud/len/panics"},
		{conformance.Choice{Level: conformance.Must}, "rc/psn/gap ud/len/long"},
		{conformance.Choice{Level: conformance.Should}, "rc/psn/gap rc/psn/wrap ud/len/long"},
		{conformance.Choice{IDs: []string{"rc/psn"}}, "rc/psn/gap rc/psn/wrap"},
		{conformance.Choice{IDs: []string{"rc/psn/"}}, "rc/psn/gap rc/psn/wrap"},
		{conformance.Choice{IDs: []string{"rc/psn*"}}, "rc/psn/gap rc/psn/wrap rc/psnx/odd"},
		{conformance.Choice{IDs: []string{"*/len"}}, "ud/len/long"},
		{conformance.Choice{IDs: []string{"*/*/wrap", "ud"}}, "rc/psn/wrap ud/len/long"},
		{conformance.Choice{IDs: []string{"rc/ps"}}, ""},
		{conformance.Choice{IDs: []string{"s"}, Dangerous: true}, "rc/psn/gap rc/psn/wrap rc/psnx/odd ud/len/long ud/len/panics"},
		{conformance.Choice{Dangerous: true, Without: []string{"level:may", "service:ud"}}, "rc/psn/gap rc/psn/wrap"},
		{conformance.Choice{Labels: []string{"spec:rfc1", "level:may"}}, "rc/psnx/odd"},
	} {
		var got []string
		for _, c := range tc.choice.From(s) {
			got = append(got, c.ID)
		}
		if g := strings.Join(got, " "); g != tc.want {
			t.Errorf("%+v: %s, want %s", tc.choice, g, tc.want)
		}
	}
	var none *conformance.NoCaseError
	c := conformance.Choice{IDs: []string{"s", "rc", "uc"}}
	if err := c.Unused(s); !errors.As(err, &none) || none.Pattern != "uc" {
		t.Errorf("Unused: %v", err)
	}
}

func TestMalformedCasesAreFound(t *testing.T) {
	good := *paperCase("a/b/c", "Flaw")
	for want, spoil := range map[string]func(*conformance.Case){
		"must be area/topic": func(c *conformance.Case) { c.ID = "a/B/c" },
		"ID is taken":        func(*conformance.Case) {},
		"cites no document":  func(c *conformance.Case) { c.ID, c.Cite.Rows = "a/b/d", nil },
		"level \"must\"":     func(c *conformance.Case) { c.ID, c.Level = "a/b/d", "must" },
		"names no mutant":    func(c *conformance.Case) { c.ID, c.Mutants = "a/b/d", nil },
		"has no body":        func(c *conformance.Case) { c.ID, c.Run = "a/b/d", nil },
		"tell people":        func(c *conformance.Case) { c.ID, c.Expects = "a/b/d", "" },
	} {
		bad := good
		spoil(&bad)
		s := conformance.Suite{Cases: []conformance.Case{good, bad}}
		if errs := s.Check(); len(errs) != 1 || !strings.Contains(errs[0].Error(), want) {
			t.Errorf("%s: %v", want, errs)
		}
	}
}
