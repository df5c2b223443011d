package conformance_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/conformance"
)

func TestFilterSelect(t *testing.T) {
	s := &conformance.Suite{Name: "s"}
	for _, id := range []string{"rc/psn/gap", "rc/psn/wrap", "rc/psnx/odd", "ud/len/long", "ud/len/panics"} {
		s.Cases = append(s.Cases, *newCase(id, "Defect"))
	}
	s.Cases[1].Level = conformance.Should
	s.Cases[2].Level = conformance.May
	s.Cases[3].Labels = []string{"service:ud"}
	s.Cases[4].Labels = []string{"service:ud", conformance.Dangerous}
	for _, tc := range []struct {
		filter conformance.Filter
		want   string
	}{
		{conformance.Filter{}, "rc/psn/gap rc/psn/wrap rc/psnx/odd ud/len/long"},
		{conformance.Filter{IncludeDangerous: true, Labels: []string{"service:ud"}}, "ud/len/long ud/len/panics"},
		{conformance.Filter{Level: conformance.Must}, "rc/psn/gap ud/len/long"},
		{conformance.Filter{Level: conformance.Should}, "rc/psn/gap rc/psn/wrap ud/len/long"},
		{conformance.Filter{IDs: []string{"rc/psn"}}, "rc/psn/gap rc/psn/wrap"},
		{conformance.Filter{IDs: []string{"rc/psn/"}}, "rc/psn/gap rc/psn/wrap"},
		{conformance.Filter{IDs: []string{"rc/psn*"}}, "rc/psn/gap rc/psn/wrap rc/psnx/odd"},
		{conformance.Filter{IDs: []string{"*/len"}}, "ud/len/long"},
		{conformance.Filter{IDs: []string{"*/*/wrap", "ud"}}, "rc/psn/wrap ud/len/long"},
		{conformance.Filter{IDs: []string{"rc/ps"}}, ""},
		{conformance.Filter{IDs: []string{"s"}, IncludeDangerous: true}, "rc/psn/gap rc/psn/wrap rc/psnx/odd ud/len/long ud/len/panics"},
		{conformance.Filter{IncludeDangerous: true, ExcludeLabels: []string{"level:may", "service:ud"}}, "rc/psn/gap rc/psn/wrap"},
		{conformance.Filter{Labels: []string{"spec:rfc1", "level:may"}}, "rc/psnx/odd"},
	} {
		var got []string
		for i := range s.Cases {
			if c := &s.Cases[i]; tc.filter.Matches(s, c) {
				got = append(got, c.ID)
			}
		}
		if g := strings.Join(got, " "); g != tc.want {
			t.Errorf("%+v: %s, want %s", tc.filter, g, tc.want)
		}
	}
	var none *conformance.NoCaseError
	c := conformance.Filter{IDs: []string{"s", "rc", "uc"}}
	if err := c.CheckPatterns(s); !errors.As(err, &none) || none.Pattern != "uc" {
		t.Errorf("CheckPatterns: %v", err)
	}
}

func TestSuiteCheckReportsMalformedCases(t *testing.T) {
	good := *newCase("a/b/c", "Defect")
	for want, corrupt := range map[string]func(*conformance.Case){
		"must be area/topic":     func(c *conformance.Case) { c.ID = "a/B/c" },
		"duplicate ID":           func(*conformance.Case) {},
		"Cite names no document": func(c *conformance.Case) { c.ID, c.Cite.Rows = "a/b/d", nil },
		"unknown level \"must\"": func(c *conformance.Case) { c.ID, c.Level = "a/b/d", "must" },
		"Defects is empty":       func(c *conformance.Case) { c.ID, c.Defects = "a/b/d", nil },
		"Run is nil":             func(c *conformance.Case) { c.ID, c.Run = "a/b/d", nil },
		"must not be empty":      func(c *conformance.Case) { c.ID, c.Expects = "a/b/d", "" },
	} {
		bad := good
		corrupt(&bad)
		s := conformance.Suite{Cases: []conformance.Case{good, bad}}
		if errs := s.Check(); len(errs) != 1 || !strings.Contains(errs[0].Error(), want) {
			t.Errorf("%s: %v", want, errs)
		}
	}
}
