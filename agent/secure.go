package agent

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

// role is an end of the connection: client or agent.
type role string

const (
	roleAgent  role = "fabrictest agent 1: agent"
	roleClient role = "fabrictest agent 1: caller"
)

// signer returns the private key of a role, derived from the shared key.
func (k Key) signer(r role) (ed25519.PrivateKey, error) {
	if k.isZero() {
		return nil, errors.New("the key is empty: make one with NewKey")
	}
	seed, err := hkdf.Key(sha256.New, k.secret[:], nil, string(r), ed25519.SeedSize)
	if err != nil {
		return nil, err
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

// tlsConfig returns the TLS configuration of an end. Certificates only carry public keys:
// issuer, subject and validity are ignored.
func tlsConfig(k Key, own, other role) (*tls.Config, error) {
	mine, err := k.signer(own)
	if err != nil {
		return nil, err
	}
	theirs, err := k.signer(other)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Unix(1<<33, 0)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, mine.Public(), mine)
	if err != nil {
		return nil, fmt.Errorf("make the certificate of %s: %w", own, err)
	}
	expected := theirs.Public().(ed25519.PublicKey)
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{{Certificate: [][]byte{cert}, PrivateKey: mine}},
		ClientAuth:   tls.RequireAnyClientCert,
		// The certificates are self-signed. VerifyConnection compares the public key, at
		// both ends and for every connection.
		InsecureSkipVerify:     true,
		SessionTicketsDisabled: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 1 {
				if got, ok := s.PeerCertificates[0].PublicKey.(ed25519.PublicKey); ok && got.Equal(expected) {
					return nil
				}
			}
			return ErrKey
		},
	}, nil
}

// handshake performs the TLS handshake with a timeout.
func handshake(conn *tls.Conn, limit time.Duration) error {
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	if err := conn.Handshake(); err != nil {
		return err
	}
	return conn.SetDeadline(time.Time{})
}

// isKeyRejection reports whether err is a TLS alert that the agent sent, as it does to reject our
// certificate. In TLS 1.3 a client gets that alert from its first read after the handshake.
func isKeyRejection(err error) bool {
	var alert *net.OpError
	return errors.As(err, &alert) && alert.Op == "remote error" // the Op of package tls for alerts of the peer
}
