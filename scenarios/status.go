package scenarios

import (
	"github.com/fabrictest/fabrictest/scenarios/workload"
	"github.com/fabrictest/fabrictest/verbs"
)

// statuses are the names of completion errors in scenarios.
var statuses = []struct {
	name   string
	status verbs.WCStatus
}{
	{"retry exceeded", verbs.WCRetryExcErr},
	{"rnr retry exceeded", verbs.WCRNRRetryExcErr},
	{"flushed", verbs.WCWRFlushErr},
	{"local length", verbs.WCLocLenErr},
	{"local operation", verbs.WCLocQPOpErr},
	{"local protection", verbs.WCLocProtErr},
	{"local access", verbs.WCLocAccessErr},
	{"memory window bind", verbs.WCMWBindErr},
	{"bad response", verbs.WCBadRespErr},
	{"remote invalid request", verbs.WCRemInvReqErr},
	{"remote access", verbs.WCRemAccessErr},
	{"remote operation", verbs.WCRemOpErr},
	{"remote abort", verbs.WCRemAbortErr},
	{"response timeout", verbs.WCRespTimeoutErr},
	{"fatal", verbs.WCFatalErr},
	{"general", verbs.WCGeneralErr},
}

// ErrorNames returns the names that Expect.Errors may have: those of completion errors, and that of a lost rank.
func ErrorNames() []string { return append(StatusNames(), workload.PeerLost) }

// Status returns the completion status that name stands for in Expect.Errors. ok is false if name
// is not one of StatusNames.
func Status(name string) (status verbs.WCStatus, ok bool) {
	for _, s := range statuses {
		if s.name == name {
			return s.status, true
		}
	}
	return 0, false
}

// StatusName returns the name that Expect.Errors has for a completion status, or the verbs name of
// a status that it has none for.
func StatusName(status verbs.WCStatus) string {
	for _, s := range statuses {
		if s.status == status {
			return s.name
		}
	}
	return status.String()
}

// StatusNames returns the names of all completion errors.
func StatusNames() []string {
	names := make([]string, len(statuses))
	for i, s := range statuses {
		names[i] = s.name
	}
	return names
}
