package verbs

import (
	"fmt"
	"strings"
)

// name returns the name of value v, table[v], or "kind(v)" if the table has none.
func name[T ~uint32](table []string, v T, kind string) string {
	if uint64(v) < uint64(len(table)) && table[v] != "" {
		return table[v]
	}
	return fmt.Sprintf("%s(%d)", kind, uint32(v))
}

var wcStatusNames = []string{
	"IBV_WC_SUCCESS", "IBV_WC_LOC_LEN_ERR", "IBV_WC_LOC_QP_OP_ERR", "IBV_WC_LOC_EEC_OP_ERR",
	"IBV_WC_LOC_PROT_ERR", "IBV_WC_WR_FLUSH_ERR", "IBV_WC_MW_BIND_ERR", "IBV_WC_BAD_RESP_ERR",
	"IBV_WC_LOC_ACCESS_ERR", "IBV_WC_REM_INV_REQ_ERR", "IBV_WC_REM_ACCESS_ERR", "IBV_WC_REM_OP_ERR",
	"IBV_WC_RETRY_EXC_ERR", "IBV_WC_RNR_RETRY_EXC_ERR", "IBV_WC_LOC_RDD_VIOL_ERR", "IBV_WC_REM_INV_RD_REQ_ERR",
	"IBV_WC_REM_ABORT_ERR", "IBV_WC_INV_EECN_ERR", "IBV_WC_INV_EEC_STATE_ERR", "IBV_WC_FATAL_ERR",
	"IBV_WC_RESP_TIMEOUT_ERR", "IBV_WC_GENERAL_ERR",
}

// String returns the libibverbs name.
func (s WCStatus) String() string { return name(wcStatusNames, s, "IBV_WC") }

var wcOpcodeNames = []string{
	0: "IBV_WC_SEND", 1: "IBV_WC_RDMA_WRITE", 2: "IBV_WC_RDMA_READ", 3: "IBV_WC_COMP_SWAP",
	4: "IBV_WC_FETCH_ADD", 5: "IBV_WC_BIND_MW", 6: "IBV_WC_LOCAL_INV", 8: "IBV_WC_FLUSH",
	9: "IBV_WC_ATOMIC_WRITE", 128: "IBV_WC_RECV", 129: "IBV_WC_RECV_RDMA_WITH_IMM",
}

// String returns the libibverbs name.
func (o WCOpcode) String() string { return name(wcOpcodeNames, o, "IBV_WC_OPCODE") }

var wrOpcodeNames = []string{
	0: "IBV_WR_RDMA_WRITE", 1: "IBV_WR_RDMA_WRITE_WITH_IMM", 2: "IBV_WR_SEND", 3: "IBV_WR_SEND_WITH_IMM",
	4: "IBV_WR_RDMA_READ", 5: "IBV_WR_ATOMIC_CMP_AND_SWP", 6: "IBV_WR_ATOMIC_FETCH_AND_ADD",
	7: "IBV_WR_LOCAL_INV", 8: "IBV_WR_BIND_MW", 9: "IBV_WR_SEND_WITH_INV",
	14: "IBV_WR_FLUSH", 15: "IBV_WR_ATOMIC_WRITE",
}

// String returns the libibverbs name.
func (o WROpcode) String() string { return name(wrOpcodeNames, o, "IBV_WR") }

var qpTypeNames = []string{2: "IBV_QPT_RC", 3: "IBV_QPT_UC", 4: "IBV_QPT_UD", 9: "IBV_QPT_XRC_SEND", 10: "IBV_QPT_XRC_RECV"}

// String returns the libibverbs name.
func (t QPType) String() string { return name(qpTypeNames, t, "IBV_QPT") }

var qpStateNames = []string{"IBV_QPS_RESET", "IBV_QPS_INIT", "IBV_QPS_RTR", "IBV_QPS_RTS", "IBV_QPS_SQD", "IBV_QPS_SQE", "IBV_QPS_ERR"}

// String returns the libibverbs name.
func (s QPState) String() string { return name(qpStateNames, s, "IBV_QPS") }

var qpAttrNames = []string{
	"IBV_QP_STATE", "IBV_QP_CUR_STATE", "IBV_QP_EN_SQD_ASYNC_NOTIFY", "IBV_QP_ACCESS_FLAGS", "IBV_QP_PKEY_INDEX",
	"IBV_QP_PORT", "IBV_QP_QKEY", "IBV_QP_AV", "IBV_QP_PATH_MTU", "IBV_QP_TIMEOUT", "IBV_QP_RETRY_CNT",
	"IBV_QP_RNR_RETRY", "IBV_QP_RQ_PSN", "IBV_QP_MAX_QP_RD_ATOMIC", "IBV_QP_ALT_PATH", "IBV_QP_MIN_RNR_TIMER",
	"IBV_QP_SQ_PSN", "IBV_QP_MAX_DEST_RD_ATOMIC", "IBV_QP_PATH_MIG_STATE", "IBV_QP_CAP", "IBV_QP_DEST_QPN",
}

// String returns the libibverbs names of the selected attributes, joined by "|", with unknown bits
// as one hexadecimal number at the end; "0x0" if none is selected.
func (m QPAttrMask) String() string {
	var names []string
	for i, n := range qpAttrNames {
		if bit := QPAttrMask(1) << i; m&bit != 0 {
			names = append(names, n)
			m &^= bit
		}
	}
	if m != 0 || names == nil {
		names = append(names, fmt.Sprintf("%#x", uint32(m)))
	}
	return strings.Join(names, "|")
}

var eventNames = []string{
	"IBV_EVENT_CQ_ERR", "IBV_EVENT_QP_FATAL", "IBV_EVENT_QP_REQ_ERR", "IBV_EVENT_QP_ACCESS_ERR", "IBV_EVENT_COMM_EST",
	"IBV_EVENT_SQ_DRAINED", "IBV_EVENT_PATH_MIG", "IBV_EVENT_PATH_MIG_ERR", "IBV_EVENT_DEVICE_FATAL",
	"IBV_EVENT_PORT_ACTIVE", "IBV_EVENT_PORT_ERR", "IBV_EVENT_LID_CHANGE", "IBV_EVENT_PKEY_CHANGE",
	"IBV_EVENT_SM_CHANGE", "IBV_EVENT_SRQ_ERR", "IBV_EVENT_SRQ_LIMIT_REACHED", "IBV_EVENT_QP_LAST_WQE_REACHED",
	"IBV_EVENT_CLIENT_REREGISTER", "IBV_EVENT_GID_CHANGE",
}

// String returns the libibverbs name.
func (t AsyncEventType) String() string { return name(eventNames, t, "IBV_EVENT") }

var portStateNames = []string{"IBV_PORT_NOP", "IBV_PORT_DOWN", "IBV_PORT_INIT", "IBV_PORT_ARMED", "IBV_PORT_ACTIVE"}

// String returns the libibverbs name.
func (s PortState) String() string { return name(portStateNames, s, "IBV_PORT") }

var gidTypeNames = []string{"IBV_GID_TYPE_IB", "IBV_GID_TYPE_ROCE_V1", "IBV_GID_TYPE_ROCE_V2"}

// String returns the libibverbs name.
func (t GIDType) String() string { return name(gidTypeNames, t, "IBV_GID_TYPE") }

var mwTypeNames = []string{1: "IBV_MW_TYPE_1", 2: "IBV_MW_TYPE_2"}

// String returns the libibverbs name.
func (t MWType) String() string { return name(mwTypeNames, t, "IBV_MW_TYPE") }

var srqTypeNames = []string{"IBV_SRQT_BASIC", "IBV_SRQT_XRC"}

// String returns the libibverbs name.
func (t SRQType) String() string { return name(srqTypeNames, t, "IBV_SRQT") }

var migStateNames = []string{"IBV_MIG_MIGRATED", "IBV_MIG_REARM", "IBV_MIG_ARMED"}

// String returns the libibverbs name.
func (s MigState) String() string { return name(migStateNames, s, "IBV_MIG") }
