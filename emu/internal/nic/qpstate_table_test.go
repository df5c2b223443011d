package nic

import (
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/verbs"
)

// published is the table of the InfiniBand specification's modify verb as the
// Linux kernel has it, written down attribute by attribute and on purpose
// without the groups that table.go uses: states, type, required, optional.
const published = `
RESET INIT | UD  | pkey_index port qkey   |
RESET INIT | UC  | pkey_index port access |
RESET INIT | RC  | pkey_index port access |
RESET INIT | INI | pkey_index port access |
RESET INIT | TGT | pkey_index port access |

INIT INIT | UD  | | pkey_index port qkey
INIT INIT | UC  | | pkey_index port access
INIT INIT | RC  | | pkey_index port access
INIT INIT | INI | | pkey_index port access
INIT INIT | TGT | | pkey_index port access

INIT RTR | UD  |                                                                     | pkey_index qkey
INIT RTR | UC  | av path_mtu dest_qpn rq_psn                                         | alt_path access pkey_index
INIT RTR | RC  | av path_mtu dest_qpn rq_psn max_dest_rd_atomic min_rnr_timer        | alt_path access pkey_index
INIT RTR | INI | av path_mtu dest_qpn rq_psn                                         | alt_path access pkey_index
INIT RTR | TGT | av path_mtu dest_qpn rq_psn max_dest_rd_atomic min_rnr_timer        | alt_path access pkey_index

RTR RTS | UD  | sq_psn                                            | cur_state qkey
RTR RTS | UC  | sq_psn                                            | cur_state alt_path access path_mig_state
RTR RTS | RC  | timeout retry_cnt rnr_retry sq_psn max_rd_atomic  | cur_state alt_path access min_rnr_timer path_mig_state
RTR RTS | INI | timeout retry_cnt rnr_retry sq_psn max_rd_atomic  | cur_state alt_path access path_mig_state
RTR RTS | TGT | timeout sq_psn                                    | cur_state alt_path access min_rnr_timer path_mig_state

RTS RTS | UD  | | cur_state qkey
RTS RTS | UC  | | cur_state access alt_path path_mig_state
RTS RTS | RC  | | cur_state access alt_path path_mig_state min_rnr_timer
RTS RTS | INI | | cur_state access alt_path path_mig_state
RTS RTS | TGT | | cur_state access alt_path path_mig_state min_rnr_timer

RTS SQD | UD  | | en_sqd_async_notify
RTS SQD | UC  | | en_sqd_async_notify
RTS SQD | RC  | | en_sqd_async_notify
RTS SQD | INI | | en_sqd_async_notify
RTS SQD | TGT | | en_sqd_async_notify

SQD RTS | UD  | | cur_state qkey
SQD RTS | UC  | | cur_state alt_path access path_mig_state
SQD RTS | RC  | | cur_state alt_path access min_rnr_timer path_mig_state
SQD RTS | INI | | cur_state alt_path access path_mig_state
SQD RTS | TGT | | cur_state alt_path access min_rnr_timer path_mig_state

SQD SQD | UD  | | pkey_index qkey
SQD SQD | UC  | | av alt_path access pkey_index path_mig_state
SQD SQD | RC  | | port av timeout retry_cnt rnr_retry max_rd_atomic max_dest_rd_atomic alt_path access pkey_index min_rnr_timer path_mig_state
SQD SQD | INI | | port av timeout retry_cnt rnr_retry max_rd_atomic alt_path access pkey_index path_mig_state
SQD SQD | TGT | | port av timeout max_dest_rd_atomic alt_path access pkey_index min_rnr_timer path_mig_state

SQE RTS | UD | | cur_state qkey
SQE RTS | UC | | cur_state access
`

var (
	typeNames = map[string]verbs.QPType{
		"UD": verbs.QPTypeUD, "UC": verbs.QPTypeUC, "RC": verbs.QPTypeRC, "INI": verbs.QPTypeXRCSend, "TGT": verbs.QPTypeXRCRecv,
	}
	stateNames = map[string]verbs.QPState{
		"RESET": verbs.QPStateReset, "INIT": verbs.QPStateInit, "RTR": verbs.QPStateRTR, "RTS": verbs.QPStateRTS,
		"SQD": verbs.QPStateSQD, "SQE": verbs.QPStateSQE, "ERR": verbs.QPStateErr,
	}
	attrNames = map[string]verbs.QPAttrMask{
		"cur_state": verbs.QPAttrCurState, "en_sqd_async_notify": verbs.QPAttrEnSQDAsyncNotify,
		"access": verbs.QPAttrAccessFlags, "pkey_index": verbs.QPAttrPKeyIndex, "port": verbs.QPAttrPort,
		"qkey": verbs.QPAttrQKey, "av": verbs.QPAttrAV, "path_mtu": verbs.QPAttrPathMTU, "timeout": verbs.QPAttrTimeout,
		"retry_cnt": verbs.QPAttrRetryCnt, "rnr_retry": verbs.QPAttrRNRRetry, "rq_psn": verbs.QPAttrRQPSN,
		"max_rd_atomic": verbs.QPAttrMaxQPRdAtomic, "alt_path": verbs.QPAttrAltPath,
		"min_rnr_timer": verbs.QPAttrMinRNRTimer, "sq_psn": verbs.QPAttrSQPSN,
		"max_dest_rd_atomic": verbs.QPAttrMaxDestRdAtomic, "path_mig_state": verbs.QPAttrPathMigState,
		"dest_qpn": verbs.QPAttrDestQPN,
	}
	allTypes = []verbs.QPType{verbs.QPTypeRC, verbs.QPTypeUC, verbs.QPTypeUD, verbs.QPTypeXRCSend, verbs.QPTypeXRCRecv}
)

// want returns every legal transition: those of the published table, and those to RESET and ERR,
// which have no attributes.
func want(t *testing.T) map[transition]rule {
	t.Helper()
	rules := map[transition]rule{}
	for line := range strings.Lines(published) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		f := strings.Split(line, "|")
		if len(f) != 4 {
			t.Fatalf("%q has %d columns, want 4", line, len(f))
		}
		s := strings.Fields(f[0])
		e := transition{pick(t, typeNames, strings.TrimSpace(f[1])), pick(t, stateNames, s[0]), pick(t, stateNames, s[1])}
		if _, twice := rules[e]; twice {
			t.Fatalf("%q is a second row for its transition", line)
		}
		rules[e] = rule{required: attrs(t, f[2]), optional: attrs(t, f[3])}
	}
	for _, typ := range allTypes {
		for _, from := range stateNames {
			rules[transition{typ, from, verbs.QPStateReset}] = rule{}
			if from != verbs.QPStateReset {
				rules[transition{typ, from, verbs.QPStateErr}] = rule{}
			}
		}
	}
	return rules
}

func attrs(t *testing.T, names string) (m verbs.QPAttrMask) {
	t.Helper()
	for _, n := range strings.Fields(names) {
		m |= pick(t, attrNames, n)
	}
	return m
}

func pick[V any](t *testing.T, m map[string]V, name string) V {
	t.Helper()
	v, ok := m[name]
	if !ok {
		t.Fatalf("unknown name %q", name)
	}
	return v
}
