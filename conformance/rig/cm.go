package rig

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/verbs"
)

// connectByCM connects two queue pairs by the connection manager. The partner is the
// passive side: some devices, when passive, deliver the first message of the active side
// only when the second arrives.
func connectByCM(dut, partner *Endpoint) {
	addr := partner.GIDEntry().GID.Addr()
	listener, err := partner.CM().Listen(netip.AddrPortFrom(addr, 0), verbs.PortSpaceTCP, 1)
	partner.Must("a listener", err)
	param := verbs.ConnParam{ResponderResources: MaxRdAtomic, InitiatorDepth: MaxRdAtomic, RetryCount: 7, RNRRetryCount: 7}
	connecting := dut.Go("the device connects", func() error {
		return Catch(func() {
			_, err := dut.CM().Connect(dut.QP, listener.Addr(), param, dut.ResponseTimeout())
			dut.Must("a connection", err)
		})
	})
	req, err := listener.GetRequest(partner.ResponseTimeout())
	partner.Must("a request for a connection", err)
	_, err = req.Accept(partner.QP, param, partner.ResponseTimeout())
	partner.Must("a connection that can be accepted", err)
	dut.Must("a connection", connecting.Wait(dut.ResponseTimeout()))
	partner.Must("a listener that can be closed", listener.Close())
}
