// Package mailer sends a mail for each order: an effect outside, so idemd grants each
// message once, and where nobody knows whether the mail was sent, the mail server is asked.
//
// It may import clients/go/idem, clients/go/messaging/consume, examples/shop/events and
// mailserver, and Watermill's core.
package mailer
