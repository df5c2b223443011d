package link

// Header lengths without options.
const (
	IPv4HeaderLen = 20
	IPv6HeaderLen = 40
	UDPHeaderLen  = 8
	TCPHeaderLen  = 20
)

// Is4 reports whether the datagram is sent over IPv4: its destination is an IPv4 address,
// perhaps mapped into IPv6.
func (d *Datagram) Is4() bool {
	a := d.Dst.Addr()
	return a.Is4() || a.Is4In6()
}

// IPBytes returns the length of the IP packet that carries the datagram.
func (d *Datagram) IPBytes() int {
	if d.Is4() {
		return IPv4HeaderLen + UDPHeaderLen + len(d.Payload)
	}
	return IPv6HeaderLen + UDPHeaderLen + len(d.Payload)
}
