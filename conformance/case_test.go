package conformance_test

import (
	"testing"

	"github.com/fabrictest/fabrictest/conformance"
)

// A citation of the IBTA specification without a section names its rows.
func TestCiteNamesRowsIfClauseIsNotPublic(t *testing.T) {
	for _, tc := range []struct {
		cite        conformance.Cite
		want, short string
	}{
		{conformance.Cite{Doc: conformance.IBTA, Section: "C9-43", Rows: []string{"roce/a/1"}}, "IBTA C9-43", "IBTA C9-43"},
		{conformance.Cite{Doc: conformance.IBTA, Rows: []string{"roce/a/1"}}, "IBTA, clause not public; row roce/a/1", "IBTA, row roce/a/1"},
		{conformance.Cite{Doc: conformance.IBTA, Rows: []string{"roce/a/1", "roce/a/2"}}, "IBTA, clause not public; rows roce/a/1, roce/a/2", "IBTA, row roce/a/1"},
		{conformance.Cite{Doc: conformance.IBTA}, "IBTA", "IBTA"},
		{conformance.Cite{Doc: "package verbs", Rows: []string{"verbs/a/1"}}, "package verbs", "package verbs"},
	} {
		if got, short := tc.cite.String(), tc.cite.Short(); got != tc.want || short != tc.short {
			t.Errorf("%+v: %q and %q, want %q and %q", tc.cite, got, short, tc.want, tc.short)
		}
	}
}
