module github.com/idemd/idemd/e2e

go 1.26.0

require (
	github.com/idemd/idemd v0.0.0
	github.com/idemd/idemd/clients/go v0.0.0
	github.com/idemd/idemd/examples/charge v0.0.0
	github.com/idemd/idemd/gen v0.0.0
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261110000943-09e21b237f2c
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
)

require (
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
	golang.org/x/text v0.44.0 // indirect
)

replace (
	github.com/idemd/idemd => ../
	github.com/idemd/idemd/clients/go => ../clients/go
	github.com/idemd/idemd/examples/charge => ../examples/charge
	github.com/idemd/idemd/gen => ../gen
)
