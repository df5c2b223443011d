package lab

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/fabrictest/fabrictest/emu/softroce"
	"github.com/fabrictest/fabrictest/emu/softroce/cm"
	"github.com/fabrictest/fabrictest/emu/softroce/engine"
)

// Flaws are what is wrong with a NIC on purpose: with the NIC itself, and with
// its connection manager.
type Flaws struct {
	NIC softroce.Quirks
	CM  cm.Quirks
}

// managerPrefix tells the quirks of the connection manager from the NIC's.
const managerPrefix = "cm."

// UnknownFlawError is a quirk that there is not.
type UnknownFlawError struct{ Name string }

func (e *UnknownFlawError) Error() string {
	return fmt.Sprintf("no quirk %q; 'fabrictest quirks' lists all", e.Name)
}

// Set adds a flaw: NAME, cm.NAME or cm.NAME=NUMBER.
func (f *Flaws) Set(spec string) error {
	name, number, hasNumber := strings.Cut(spec, "=")
	field := reflect.Value{}
	if rest, ok := strings.CutPrefix(name, managerPrefix); ok {
		field = reflect.ValueOf(&f.CM).Elem().FieldByName(rest)
	}
	kind := reflect.Invalid
	if field.IsValid() {
		kind = field.Kind()
	}
	switch {
	case kind == reflect.Uint64:
		n, err := strconv.ParseUint(number, 10, 64)
		if err != nil || n == 0 {
			return fmt.Errorf("quirk %s: it takes a number from 1 on, %s=3 say", spec, name)
		}
		field.SetUint(n)
	case hasNumber:
		return fmt.Errorf("quirk %s: only %sStopAfterConns takes a number", spec, managerPrefix)
	case kind == reflect.Bool:
		field.SetBool(true)
	case f.NIC.Set(name, true) != nil:
		return &UnknownFlawError{Name: name}
	}
	return nil
}

// FlawInfo describes a quirk.
type FlawInfo struct {
	Name   string `json:"name"`
	Defect string `json:"imitates,omitempty"`
	Does   string `json:"does"`
}

// AllFlaws lists every quirk: those of the NIC and then those of its connection
// manager.
func AllFlaws() (all []FlawInfo) {
	for _, q := range engine.AllQuirks() {
		all = append(all, FlawInfo{q.Name, q.Defect, q.Does})
	}
	return append(all, managerFlaws...)
}

// FlawNames lists the names that Set takes, without numbers.
func FlawNames() (names []string) {
	for _, q := range AllFlaws() {
		names = append(names, strings.TrimSuffix(q.Name, "=N"))
	}
	return names
}

// managerFlaws are the switches of cm.Quirks. Its addresses are not among them:
// a detour differs from NIC to NIC.
var managerFlaws = []FlawInfo{
	{managerPrefix + "IgnoreREQ", "", "connection requests to a listener are never answered"},
	{managerPrefix + "StopAfterConns=N", "R14", "connection requests are ignored after N connections"},
	{managerPrefix + "LeakTimeWait", "", "connections are never freed at the end of time wait"},
	{managerPrefix + "IgnoreUnknownService", "", "requests to a port nobody listens on are not refused"},
	{managerPrefix + "RejectWithoutCommID", "", "a refusal does not say which request it is for"},
	{managerPrefix + "NoRetransmitREP", "", "a lost reply is not sent again"},
	{managerPrefix + "DuplicateREQSecondConn", "", "a repeated request is taken for a new connection"},
	{managerPrefix + "RejectZeroLID", "", "requests without LIDs, which RoCEv2 has not, are refused"},
	{managerPrefix + "NoDREPWhenDisconnected", "", "a disconnect request is answered only while connected"},
	{managerPrefix + "IgnoreCommEst", "", "data that arrives does not stand for a lost confirmation"},
	{managerPrefix + "AcceptAnyPrivateVersion", "", "the version of rdma_cm's header is not checked"},
	{managerPrefix + "NoMRA", "", "the peer is never asked to wait longer"},
	{managerPrefix + "SIDRZeroQKey", "", "a datagram service is resolved without its Q_Key"},
}
