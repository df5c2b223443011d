package verbs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	. "github.com/fabrictest/fabrictest/verbs"
)

// ibv lists every constant that rdma-core's verbs.h or rdma_cma.h defines, with its
// name and value there.
var ibv = []struct {
	goName string
	value  any
	name   string
	want   int64
}{
	{"TransportIB", TransportIB, "IBV_TRANSPORT_IB", 0},
	{"TransportIWARP", TransportIWARP, "IBV_TRANSPORT_IWARP", 1},
	{"TransportUnspec", TransportUnspec, "IBV_TRANSPORT_UNSPECIFIED", 4},

	{"PortNop", PortNop, "IBV_PORT_NOP", 0},
	{"PortDown", PortDown, "IBV_PORT_DOWN", 1},
	{"PortInit", PortInit, "IBV_PORT_INIT", 2},
	{"PortArmed", PortArmed, "IBV_PORT_ARMED", 3},
	{"PortActive", PortActive, "IBV_PORT_ACTIVE", 4},

	{"MTU256", MTU256, "IBV_MTU_256", 1},
	{"MTU512", MTU512, "IBV_MTU_512", 2},
	{"MTU1024", MTU1024, "IBV_MTU_1024", 3},
	{"MTU2048", MTU2048, "IBV_MTU_2048", 4},
	{"MTU4096", MTU4096, "IBV_MTU_4096", 5},

	{"GIDTypeIB", GIDTypeIB, "IBV_GID_TYPE_IB", 0},
	{"GIDTypeRoCEv1", GIDTypeRoCEv1, "IBV_GID_TYPE_ROCE_V1", 1},
	{"GIDTypeRoCEv2", GIDTypeRoCEv2, "IBV_GID_TYPE_ROCE_V2", 2},

	{"EventCQErr", EventCQErr, "IBV_EVENT_CQ_ERR", 0},
	{"EventQPFatal", EventQPFatal, "IBV_EVENT_QP_FATAL", 1},
	{"EventQPReqErr", EventQPReqErr, "IBV_EVENT_QP_REQ_ERR", 2},
	{"EventQPAccessErr", EventQPAccessErr, "IBV_EVENT_QP_ACCESS_ERR", 3},
	{"EventCommEst", EventCommEst, "IBV_EVENT_COMM_EST", 4},
	{"EventSQDrained", EventSQDrained, "IBV_EVENT_SQ_DRAINED", 5},
	{"EventPathMig", EventPathMig, "IBV_EVENT_PATH_MIG", 6},
	{"EventPathMigErr", EventPathMigErr, "IBV_EVENT_PATH_MIG_ERR", 7},
	{"EventDeviceFatal", EventDeviceFatal, "IBV_EVENT_DEVICE_FATAL", 8},
	{"EventPortActive", EventPortActive, "IBV_EVENT_PORT_ACTIVE", 9},
	{"EventPortErr", EventPortErr, "IBV_EVENT_PORT_ERR", 10},
	{"EventLIDChange", EventLIDChange, "IBV_EVENT_LID_CHANGE", 11},
	{"EventPKeyChange", EventPKeyChange, "IBV_EVENT_PKEY_CHANGE", 12},
	{"EventSMChange", EventSMChange, "IBV_EVENT_SM_CHANGE", 13},
	{"EventSRQErr", EventSRQErr, "IBV_EVENT_SRQ_ERR", 14},
	{"EventSRQLimitReached", EventSRQLimitReached, "IBV_EVENT_SRQ_LIMIT_REACHED", 15},
	{"EventQPLastWQEReached", EventQPLastWQEReached, "IBV_EVENT_QP_LAST_WQE_REACHED", 16},
	{"EventClientReregister", EventClientReregister, "IBV_EVENT_CLIENT_REREGISTER", 17},
	{"EventGIDChange", EventGIDChange, "IBV_EVENT_GID_CHANGE", 18},

	{"AccessLocalWrite", AccessLocalWrite, "IBV_ACCESS_LOCAL_WRITE", 1},
	{"AccessRemoteWrite", AccessRemoteWrite, "IBV_ACCESS_REMOTE_WRITE", 2},
	{"AccessRemoteRead", AccessRemoteRead, "IBV_ACCESS_REMOTE_READ", 4},
	{"AccessRemoteAtomic", AccessRemoteAtomic, "IBV_ACCESS_REMOTE_ATOMIC", 8},
	{"AccessMWBind", AccessMWBind, "IBV_ACCESS_MW_BIND", 16},
	{"AccessZeroBased", AccessZeroBased, "IBV_ACCESS_ZERO_BASED", 32},
	{"AccessOnDemand", AccessOnDemand, "IBV_ACCESS_ON_DEMAND", 64},
	{"AccessHugeTLB", AccessHugeTLB, "IBV_ACCESS_HUGETLB", 128},
	{"AccessFlushGlobal", AccessFlushGlobal, "IBV_ACCESS_FLUSH_GLOBAL", 256},
	{"AccessFlushPersistent", AccessFlushPersistent, "IBV_ACCESS_FLUSH_PERSISTENT", 512},
	{"AccessRelaxedOrdering", AccessRelaxedOrdering, "IBV_ACCESS_RELAXED_ORDERING", 1 << 20},
	{"AccessOptionalMask", AccessOptionalMask, "IBV_ACCESS_OPTIONAL_RANGE", 0x3ff00000},

	{"MWType1", MWType1, "IBV_MW_TYPE_1", 1},
	{"MWType2", MWType2, "IBV_MW_TYPE_2", 2},

	{"SRQBasic", SRQBasic, "IBV_SRQT_BASIC", 0},
	{"SRQXRC", SRQXRC, "IBV_SRQT_XRC", 1},
	{"SRQMaxWR", SRQMaxWR, "IBV_SRQ_MAX_WR", 1},
	{"SRQLimit", SRQLimit, "IBV_SRQ_LIMIT", 2},

	{"QPTypeRC", QPTypeRC, "IBV_QPT_RC", 2},
	{"QPTypeUC", QPTypeUC, "IBV_QPT_UC", 3},
	{"QPTypeUD", QPTypeUD, "IBV_QPT_UD", 4},
	{"QPTypeXRCSend", QPTypeXRCSend, "IBV_QPT_XRC_SEND", 9},
	{"QPTypeXRCRecv", QPTypeXRCRecv, "IBV_QPT_XRC_RECV", 10},

	{"QPStateReset", QPStateReset, "IBV_QPS_RESET", 0},
	{"QPStateInit", QPStateInit, "IBV_QPS_INIT", 1},
	{"QPStateRTR", QPStateRTR, "IBV_QPS_RTR", 2},
	{"QPStateRTS", QPStateRTS, "IBV_QPS_RTS", 3},
	{"QPStateSQD", QPStateSQD, "IBV_QPS_SQD", 4},
	{"QPStateSQE", QPStateSQE, "IBV_QPS_SQE", 5},
	{"QPStateErr", QPStateErr, "IBV_QPS_ERR", 6},

	{"MigMigrated", MigMigrated, "IBV_MIG_MIGRATED", 0},
	{"MigRearm", MigRearm, "IBV_MIG_REARM", 1},
	{"MigArmed", MigArmed, "IBV_MIG_ARMED", 2},

	{"QPAttrState", QPAttrState, "IBV_QP_STATE", 1 << 0},
	{"QPAttrCurState", QPAttrCurState, "IBV_QP_CUR_STATE", 1 << 1},
	{"QPAttrEnSQDAsyncNotify", QPAttrEnSQDAsyncNotify, "IBV_QP_EN_SQD_ASYNC_NOTIFY", 1 << 2},
	{"QPAttrAccessFlags", QPAttrAccessFlags, "IBV_QP_ACCESS_FLAGS", 1 << 3},
	{"QPAttrPKeyIndex", QPAttrPKeyIndex, "IBV_QP_PKEY_INDEX", 1 << 4},
	{"QPAttrPort", QPAttrPort, "IBV_QP_PORT", 1 << 5},
	{"QPAttrQKey", QPAttrQKey, "IBV_QP_QKEY", 1 << 6},
	{"QPAttrAV", QPAttrAV, "IBV_QP_AV", 1 << 7},
	{"QPAttrPathMTU", QPAttrPathMTU, "IBV_QP_PATH_MTU", 1 << 8},
	{"QPAttrTimeout", QPAttrTimeout, "IBV_QP_TIMEOUT", 1 << 9},
	{"QPAttrRetryCnt", QPAttrRetryCnt, "IBV_QP_RETRY_CNT", 1 << 10},
	{"QPAttrRNRRetry", QPAttrRNRRetry, "IBV_QP_RNR_RETRY", 1 << 11},
	{"QPAttrRQPSN", QPAttrRQPSN, "IBV_QP_RQ_PSN", 1 << 12},
	{"QPAttrMaxQPRdAtomic", QPAttrMaxQPRdAtomic, "IBV_QP_MAX_QP_RD_ATOMIC", 1 << 13},
	{"QPAttrAltPath", QPAttrAltPath, "IBV_QP_ALT_PATH", 1 << 14},
	{"QPAttrMinRNRTimer", QPAttrMinRNRTimer, "IBV_QP_MIN_RNR_TIMER", 1 << 15},
	{"QPAttrSQPSN", QPAttrSQPSN, "IBV_QP_SQ_PSN", 1 << 16},
	{"QPAttrMaxDestRdAtomic", QPAttrMaxDestRdAtomic, "IBV_QP_MAX_DEST_RD_ATOMIC", 1 << 17},
	{"QPAttrPathMigState", QPAttrPathMigState, "IBV_QP_PATH_MIG_STATE", 1 << 18},
	{"QPAttrCap", QPAttrCap, "IBV_QP_CAP", 1 << 19},
	{"QPAttrDestQPN", QPAttrDestQPN, "IBV_QP_DEST_QPN", 1 << 20},

	{"OpRDMAWrite", OpRDMAWrite, "IBV_WR_RDMA_WRITE", 0},
	{"OpRDMAWriteImm", OpRDMAWriteImm, "IBV_WR_RDMA_WRITE_WITH_IMM", 1},
	{"OpSend", OpSend, "IBV_WR_SEND", 2},
	{"OpSendImm", OpSendImm, "IBV_WR_SEND_WITH_IMM", 3},
	{"OpRDMARead", OpRDMARead, "IBV_WR_RDMA_READ", 4},
	{"OpAtomicCmpAndSwp", OpAtomicCmpAndSwp, "IBV_WR_ATOMIC_CMP_AND_SWP", 5},
	{"OpAtomicFetchAdd", OpAtomicFetchAdd, "IBV_WR_ATOMIC_FETCH_AND_ADD", 6},
	{"OpLocalInv", OpLocalInv, "IBV_WR_LOCAL_INV", 7},
	{"OpBindMW", OpBindMW, "IBV_WR_BIND_MW", 8},
	{"OpSendInv", OpSendInv, "IBV_WR_SEND_WITH_INV", 9},
	{"OpFlush", OpFlush, "IBV_WR_FLUSH", 14},
	{"OpAtomicWrite", OpAtomicWrite, "IBV_WR_ATOMIC_WRITE", 15},

	{"SendFence", SendFence, "IBV_SEND_FENCE", 1},
	{"SendSignaled", SendSignaled, "IBV_SEND_SIGNALED", 2},
	{"SendSolicited", SendSolicited, "IBV_SEND_SOLICITED", 4},
	{"SendInline", SendInline, "IBV_SEND_INLINE", 8},

	{"FlushGlobal", FlushGlobal, "IBV_FLUSH_GLOBAL", 1},
	{"FlushPersistent", FlushPersistent, "IBV_FLUSH_PERSISTENT", 2},
	{"FlushRange", FlushRange, "IBV_FLUSH_RANGE", 0},
	{"FlushMR", FlushMR, "IBV_FLUSH_MR", 1},

	{"WCSuccess", WCSuccess, "IBV_WC_SUCCESS", 0},
	{"WCLocLenErr", WCLocLenErr, "IBV_WC_LOC_LEN_ERR", 1},
	{"WCLocQPOpErr", WCLocQPOpErr, "IBV_WC_LOC_QP_OP_ERR", 2},
	{"WCLocEECOpErr", WCLocEECOpErr, "IBV_WC_LOC_EEC_OP_ERR", 3},
	{"WCLocProtErr", WCLocProtErr, "IBV_WC_LOC_PROT_ERR", 4},
	{"WCWRFlushErr", WCWRFlushErr, "IBV_WC_WR_FLUSH_ERR", 5},
	{"WCMWBindErr", WCMWBindErr, "IBV_WC_MW_BIND_ERR", 6},
	{"WCBadRespErr", WCBadRespErr, "IBV_WC_BAD_RESP_ERR", 7},
	{"WCLocAccessErr", WCLocAccessErr, "IBV_WC_LOC_ACCESS_ERR", 8},
	{"WCRemInvReqErr", WCRemInvReqErr, "IBV_WC_REM_INV_REQ_ERR", 9},
	{"WCRemAccessErr", WCRemAccessErr, "IBV_WC_REM_ACCESS_ERR", 10},
	{"WCRemOpErr", WCRemOpErr, "IBV_WC_REM_OP_ERR", 11},
	{"WCRetryExcErr", WCRetryExcErr, "IBV_WC_RETRY_EXC_ERR", 12},
	{"WCRNRRetryExcErr", WCRNRRetryExcErr, "IBV_WC_RNR_RETRY_EXC_ERR", 13},
	{"WCLocRDDViolErr", WCLocRDDViolErr, "IBV_WC_LOC_RDD_VIOL_ERR", 14},
	{"WCRemInvRDReqErr", WCRemInvRDReqErr, "IBV_WC_REM_INV_RD_REQ_ERR", 15},
	{"WCRemAbortErr", WCRemAbortErr, "IBV_WC_REM_ABORT_ERR", 16},
	{"WCInvEECNErr", WCInvEECNErr, "IBV_WC_INV_EECN_ERR", 17},
	{"WCInvEECStateErr", WCInvEECStateErr, "IBV_WC_INV_EEC_STATE_ERR", 18},
	{"WCFatalErr", WCFatalErr, "IBV_WC_FATAL_ERR", 19},
	{"WCRespTimeoutErr", WCRespTimeoutErr, "IBV_WC_RESP_TIMEOUT_ERR", 20},
	{"WCGeneralErr", WCGeneralErr, "IBV_WC_GENERAL_ERR", 21},

	{"WCOpSend", WCOpSend, "IBV_WC_SEND", 0},
	{"WCOpRDMAWrite", WCOpRDMAWrite, "IBV_WC_RDMA_WRITE", 1},
	{"WCOpRDMARead", WCOpRDMARead, "IBV_WC_RDMA_READ", 2},
	{"WCOpCompSwap", WCOpCompSwap, "IBV_WC_COMP_SWAP", 3},
	{"WCOpFetchAdd", WCOpFetchAdd, "IBV_WC_FETCH_ADD", 4},
	{"WCOpBindMW", WCOpBindMW, "IBV_WC_BIND_MW", 5},
	{"WCOpLocalInv", WCOpLocalInv, "IBV_WC_LOCAL_INV", 6},
	{"WCOpFlush", WCOpFlush, "IBV_WC_FLUSH", 8},
	{"WCOpAtomicWrite", WCOpAtomicWrite, "IBV_WC_ATOMIC_WRITE", 9},
	{"WCOpRecv", WCOpRecv, "IBV_WC_RECV", 128},
	{"WCOpRecvRDMAWithImm", WCOpRecvRDMAWithImm, "IBV_WC_RECV_RDMA_WITH_IMM", 129},

	{"WCWithGRH", WCWithGRH, "IBV_WC_GRH", 1},
	{"WCWithImm", WCWithImm, "IBV_WC_WITH_IMM", 2},
	{"WCWithInv", WCWithInv, "IBV_WC_WITH_INV", 8},

	{"PortSpaceTCP", PortSpaceTCP, "RDMA_PS_TCP", 0x0106},
	{"PortSpaceUDP", PortSpaceUDP, "RDMA_PS_UDP", 0x0111},
	{"PortSpaceIB", PortSpaceIB, "RDMA_PS_IB", 0x013f},
}

// notInLibibverbs reports whether a constant has no counterpart in libibverbs.
func notInLibibverbs(name string) bool {
	switch name {
	case "Forever", "GRHLen", "MulticastQPN":
		return true
	}
	return strings.HasPrefix(name, "Cap") || strings.HasPrefix(name, "Work")
}

func number(v any) int64 {
	if r := reflect.ValueOf(v); r.CanInt() {
		return r.Int()
	}
	return int64(reflect.ValueOf(v).Uint())
}

func TestValuesMatchLibibverbs(t *testing.T) {
	for _, c := range ibv {
		if got := number(c.value); got != c.want {
			t.Errorf("%s is %d, but %s is %d", c.goName, got, c.name, c.want)
		}
	}
}

func TestNamesMatchLibibverbs(t *testing.T) {
	printed := map[reflect.Type]int{}
	for _, c := range ibv {
		s, ok := c.value.(fmt.Stringer)
		if _, isMTU := c.value.(MTU); !ok || isMTU { // an MTU prints its bytes
			continue
		}
		printed[reflect.TypeOf(c.value)]++
		if got := s.String(); got != c.name {
			t.Errorf("%s prints %q, want %q", c.goName, got, c.name)
		}
	}
	for _, v := range []any{WCSuccess, WCOpSend, OpSend, QPTypeRC, QPStateRTS, EventCommEst, QPAttrState} {
		if printed[reflect.TypeOf(v)] == 0 {
			t.Errorf("%T prints no name", v)
		}
	}
}

// Every new constant must be added to ibv or to notInLibibverbs.
func TestEveryConstantIsListed(t *testing.T) {
	listed := map[string]bool{}
	for _, c := range ibv {
		listed[c.goName] = true
	}
	for _, name := range exportedConstants(t) {
		if listed[name] == notInLibibverbs(name) {
			t.Errorf("%s: in ibv %v, in notInLibibverbs %v; want exactly one", name, listed[name], notInLibibverbs(name))
		}
		delete(listed, name)
	}
	for name := range listed {
		t.Errorf("%s is listed but does not exist", name)
	}
}

func exportedConstants(t *testing.T) (names []string) {
	t.Helper()
	for _, file := range goFiles(t) {
		f := must.Get(parser.ParseFile(token.NewFileSet(), file, nil, 0))(t)
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST {
				continue
			}
			for _, s := range g.Specs {
				for _, id := range s.(*ast.ValueSpec).Names {
					if id.IsExported() {
						names = append(names, id.Name)
					}
				}
			}
		}
	}
	if len(names) == 0 {
		t.Fatal("found no constants")
	}
	return names
}
