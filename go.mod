module github.com/fabrictest/fabrictest

go 1.26.0

require (
	github.com/gopacket/gopacket v1.7.4 // indirect
	github.com/vishvananda/netlink v1.3.1 // indirect
	github.com/vishvananda/netns v0.0.5 // indirect
	golang.org/x/net v0.55.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)
